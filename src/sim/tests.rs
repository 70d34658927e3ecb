//! What the engine promises, over networks that do their worst.

use super::traffic::{Game, Load};
use super::*;

fn play(setup: Setup, load: Load) -> (Network, Game) {
    let mut network = Network::new(setup);
    let mut game = Game::new(&mut network, load);
    if let Err(missing) = game.run(&mut network, 120_000_000_000) {
        panic!(
            "seed {}: {missing}; {:?}\n{:?}",
            network.setup.seed,
            network.fates,
            network.nodes[0].engine.counters()
        );
    }
    (network, game)
}

#[test]
fn fragments_of_every_size_arrive() {
    let (network, game) = play(Setup::default(), Load::default());
    assert_eq!((game.failed, game.completed), (0, 200));
    assert_eq!(network.fates.overrun, 0);
}
