//! Where the peers of a module's endpoints are.

use crate::engine::EndpointId;
use crate::link::AddressId;

/// Where the peer of an endpoint is.
pub(super) struct Route {
    pub(super) of: EndpointId,
    pub(super) to: AddressId,
    /// Only what the peer may have missed still goes there.
    pub(super) is_closed: bool,
}

/// Routes by the endpoint's place. A closed one may still stand where a new one belongs.
#[derive(Default)]
pub(super) struct Routes {
    places: Vec<Option<Route>>,
}

impl Routes {
    #[inline]
    pub(super) fn find(&self, of: EndpointId) -> Option<&Route> {
        self.places.get(of.index())?.as_ref().filter(|route| route.of == of)
    }

    pub(super) fn find_mut(&mut self, of: EndpointId) -> Option<&mut Route> {
        self.places.get_mut(of.index())?.as_mut().filter(|route| route.of == of)
    }

    /// Puts a route in its place; the one that stood there.
    pub(super) fn put(&mut self, route: Route) -> Option<Route> {
        let place = route.of.index();
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place].replace(route)
    }

    pub(super) fn take(&mut self, of: EndpointId) -> Option<Route> {
        self.places.get_mut(of.index())?.take_if(|route| route.of == of)
    }

    /// The endpoints of those that are not closed.
    pub(super) fn open(&self) -> Vec<EndpointId> {
        let open = |route: &Route| (!route.is_closed).then_some(route.of);
        self.places.iter().flatten().filter_map(open).collect()
    }

    /// The endpoints whose peers are at an address.
    pub(super) fn at(&self, address: AddressId) -> Vec<EndpointId> {
        let there = |route: &Route| (route.to == address).then_some(route.of);
        self.places.iter().flatten().filter_map(there).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::peers::Peers;
    use std::collections::HashMap;

    /// Everything that can happen to a few places, endpoints of many generations coming and going: a
    /// route is found by the endpoint that it was put for, as long as nobody else has its place, and by
    /// no other.
    #[test]
    fn an_endpoint_finds_its_own_route_or_none() {
        const PLACES: u64 = 5;
        const GENERATIONS: u64 = 8;
        let mut addresses: Peers<u64, ()> = Peers::new();
        let mut routes = Routes::default();
        // What stands at each place.
        let mut model: HashMap<usize, (EndpointId, AddressId)> = HashMap::new();
        let mut dice = 0x9E37_79B9_u64;
        let mut replaced = 0;
        for round in 0..100_000_u64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (generation, place) = ((dice >> 40) % GENERATIONS, (dice >> 20) % PLACES);
            let endpoint = EndpointId::from_raw((generation << 32) | place);
            let stands = model.get(&endpoint.index()).copied().filter(|(of, _)| *of == endpoint);
            match dice >> 60 {
                0..8 if stands.is_none() => {
                    let to = addresses.resolve(round, || Ok(())).expect("room");
                    let old = routes.put(Route { of: endpoint, to, is_closed: false });
                    let before = model.insert(endpoint.index(), (endpoint, to));
                    assert_eq!(old.map(|old| (old.of, old.to)), before);
                    replaced += u32::from(before.is_some());
                }
                8..10 => {
                    let taken = routes.take(endpoint).map(|route| (route.of, route.to));
                    assert_eq!(taken, stands);
                    stands.map(|_| model.remove(&endpoint.index()));
                }
                10 => {
                    if let Some(route) = routes.find_mut(endpoint) {
                        route.is_closed = true;
                    }
                }
                _ => {}
            }
            for raw in (0..GENERATIONS).flat_map(|high| (0..PLACES + 1).map(move |low| (high << 32) | low)) {
                let any = EndpointId::from_raw(raw);
                let expected = model.get(&any.index()).filter(|(of, _)| *of == any);
                assert_eq!(routes.find(any).map(|route| route.to), expected.map(|(_, to)| *to), "{round}");
            }
            for (of, to) in model.values() {
                assert_eq!(routes.at(*to), [*of]);
            }
        }
        assert!(replaced > 1000, "the places were hardly ever used again: {replaced}");
    }
}
