//! What the devices of those processes do, and the network between them.

use super::world::{Conn, Fault, Held, Said, Side, World, address};
use super::*;

impl World {
    /// A connection thread does what its manager says, and passes on what that tells.
    pub(super) fn perform(&mut self, at: usize) {
        while let Some(action) = self.sides[at].manager.poll_action() {
            let failed = if self.is_refused(at, &action) {
                Event::Rejected { private: &[] }
            } else if self.fails(at, &action) {
                Event::Refused
            } else {
                self.act(at, action);
                continue;
            };
            self.sides[at].manager.handle_event(action.id(), failed, self.now);
        }
        let side = &mut self.sides[at];
        while let Some(notice) = side.manager.poll_notice() {
            side.notices.push_back(notice);
        }
        side.manager.desk.counters = Counters::default();
        if self.budget.lates == 0 {
            let conns = &side.conns;
            side.events.retain(|(id, said)| matches!(said, Said::Request(..)) || conns.contains_key(id));
        }
    }

    fn fails(&mut self, at: usize, action: &Action) -> bool {
        let side = &mut self.sides[at];
        let is_it = matches!(
            (side.armed, action),
            (Some(Fault::QueuePair), Action::MakeQueuePair { .. })
                | (Some(Fault::Connect), Action::Connect { .. })
                | (Some(Fault::Accept), Action::Accept { .. })
        );
        if is_it {
            side.armed = None;
        }
        is_it
    }

    /// Where nobody listens, siw says so at once.
    fn is_refused(&self, at: usize, action: &Action) -> bool {
        let Action::Connect { id, .. } = action else { return false };
        let target = self.sides[at].conns[id].target;
        self.wire == Wire::Iwarp && !self.sides[target].listens
    }

    fn act(&mut self, at: usize, action: Action) {
        let id = action.id();
        match action {
            Action::Resolve { to, .. } => {
                let target =
                    (0..self.sides.len()).find(|side| address(*side) == to).expect("there is such a side");
                let side = &mut self.sides[at];
                let conn = Conn { is_active: true, target, ..Conn::default() };
                assert!(side.conns.insert(id, conn).is_none(), "a number is never used again");
                side.say(id, if side.listens { Said::AddressResolved } else { Said::AddressError });
            }
            Action::Route { .. } => self.sides[at].say(id, Said::RouteResolved),
            Action::MakeQueuePair { endpoint, attempt, queue, .. } => {
                let conn = self.conn(at, id);
                assert!(conn.made.is_none() && !conn.is_dummy);
                conn.made = Some((endpoint, attempt, queue));
            }
            Action::PostReceive { endpoint, attempt, .. } => {
                let credits = self.queues.credits;
                let conn = self.conn(at, id);
                assert_eq!(
                    conn.made,
                    Some((endpoint, attempt, credits)),
                    "on the credits queue, and no other"
                );
                conn.receives += 1;
            }
            Action::MakeDummy { .. } => self.conn(at, id).is_dummy = true,
            Action::Connect { private, .. } => self.connect(at, id, private),
            Action::Accept { private, .. } => self.accept(at, id, private),
            Action::Reject { private, .. } => {
                let conn = self.sides[at].conns.remove(&id).expect("it came with a request");
                assert!(!conn.is_active && !conn.is_established);
                self.check_rejected(at, &conn);
                self.tell_other(&conn, Said::Rejected(Some(private)));
            }
            Action::Disconnect { .. } => {
                let conn = self.conn(at, id);
                if !conn.is_dead {
                    conn.is_dead = true;
                    let conn = conn.clone();
                    self.sides[at].say(id, Said::Disconnected);
                    self.tell_other(&conn, Said::Disconnected);
                }
            }
            Action::Destroy { .. } => {
                let conn = self.sides[at].conns.remove(&id).expect("it is destroyed once");
                let is_used = |held: &Held| {
                    let is_its = conn.made.map(|made| made.1) == held.endpoint.present();
                    held.ids.contains(&id) && is_its && held.endpoint.present().is_some()
                };
                assert!(!self.sides[at].held.values().any(is_used), "the main thread uses it");
                self.sever(&conn);
            }
        }
    }

    /// The other side loses what was at this end.
    pub(super) fn sever(&mut self, conn: &Conn) {
        let Some((to, other)) = conn.other else { return };
        let is_up = self.sides[to].conns.get(&other).is_some_and(|other| other.is_up());
        if !conn.is_dead {
            self.tell_other(conn, if is_up { Said::Disconnected } else { Said::Rejected(None) });
        }
    }

    /// Openib ends its job when it cannot reject a kick. It is that of an acceptor, which may let go of it when it closes.
    fn check_rejected(&self, at: usize, conn: &Conn) {
        let Some((from, kick)) = conn.other.filter(|_| self.dialect == Dialect::Openib) else { return };
        let asker = &self.sides[from];
        let is_its = |link: &&Link| link.peer.address == address(at) && link.role == Role::Acceptor;
        let is_open = asker.manager.links.values().find(is_its).is_some_and(|link| !link.closing);
        assert!(!is_open || asker.conns.contains_key(&kick), "a kick is there until it is rejected");
    }

    fn tell_other(&mut self, conn: &Conn, said: Said) {
        let Some((to, other)) = conn.other else { return };
        if self.sides[to].conns.contains_key(&other) {
            self.sides[to].say(other, said);
        }
    }

    fn conn(&mut self, at: usize, id: Id) -> &mut Conn {
        self.sides[at].conns.get_mut(&id).expect("it has been made")
    }

    fn connect(&mut self, at: usize, id: Id, private: Bytes) {
        let credits = self.queues.credits;
        let number = self.sides[at].number(at, id);
        let conn = self.conn(at, id);
        match conn.made {
            Some((_, _, queue)) => {
                assert_eq!(conn.receives, u8::from(queue == credits), "one receive, before it connects");
            }
            None => assert!(conn.is_dummy),
        }
        let (target, asked) = (conn.target, Id::Peers(number));
        conn.other = Some((target, asked));
        if self.sides[target].listens {
            self.sides[target].say(asked, Said::Request(at, id, private));
        } else {
            self.sides[at].say(id, Said::Rejected(None));
        }
    }

    fn accept(&mut self, at: usize, id: Id, private: Bytes) {
        let dialect = self.dialect;
        let credits = self.queues.credits;
        let conn = self.conn(at, id);
        let (_, _, queue) = conn.made.expect("it has a queue pair");
        assert_eq!(conn.receives, u8::from(queue == credits), "one receive, before it accepts");
        let (from, asker) = conn.other.expect("somebody asks");
        assert_eq!(
            Role::of(address(from), address(at), dialect),
            Some(Role::Initiator),
            "always in one direction"
        );
        conn.is_accepted = true;
        match self.sides[from].conns.get_mut(&asker) {
            Some(active) if !active.is_dead => {
                active.other = Some((at, id));
                self.sides[from].say(asker, Said::Established(Some(private)));
            }
            _ => self.sides[at].say(id, Said::Rejected(None)),
        }
    }

    /// A connection thread is told of an event.
    pub(super) fn tell(&mut self, at: usize, id: Id, said: Said) {
        let event = match &said {
            Said::Request(from, asker, private) => {
                self.ask(at, id, (*from, *asker), private);
                return;
            }
            Said::Established(private) => {
                if let Some(conn) = self.sides[at].conns.get_mut(&id).filter(|conn| !conn.is_established) {
                    conn.is_established = true;
                    let conn = conn.clone();
                    if conn.is_active && !conn.is_dead {
                        self.tell_other(&conn, Said::Established(None));
                    }
                }
                Event::Established { private: private.as_ref().map_or(&[], |bytes| bytes) }
            }
            Said::Rejected(private) => {
                Event::Rejected { private: private.as_ref().map_or(&[0; 148], |bytes| bytes) }
            }
            Said::AddressResolved => Event::AddressResolved,
            Said::AddressError => Event::AddressError,
            Said::RouteResolved => Event::RouteResolved,
            Said::RouteError => Event::RouteError,
            Said::Unreachable => Event::Unreachable,
            Said::ConnectError => Event::ConnectError,
            Said::Disconnected => Event::Disconnected,
            Said::DeviceRemoved => Event::DeviceRemoved,
        };
        self.sides[at].manager.handle_event(id, event, self.now);
    }

    fn ask(&mut self, at: usize, id: Id, from: (usize, Id), private: &Bytes) {
        let conn = Conn { other: Some(from), ..Conn::default() };
        if !self.sides[at].listens {
            self.tell_other(&conn, Said::Rejected(None));
            return;
        }
        self.sides[at].conns.insert(id, conn);
        self.sides[at].manager.handle_request(0, id, private, self.now);
    }

    /// Who asks is answered, and its queue pair cannot be made ready: the kernel tells the other side.
    pub(super) fn spoil(&mut self, at: usize, id: Id) {
        let conn = self.conn(at, id);
        conn.is_dead = true;
        if let Some((to, other)) = conn.other
            && let Some(conn) = self.sides[to].conns.get_mut(&other)
        {
            conn.is_dead = true;
            self.sides[to].say(other, Said::Rejected(None));
        }
        self.tell(at, id, Said::ConnectError);
    }

    /// A connection breaks; what is in it is lost.
    pub(super) fn tear(&mut self, at: usize, id: Id) {
        let other = self.sides[at].conns[&id].other;
        for (side, id) in [Some((at, id)), other].into_iter().flatten() {
            let side = &mut self.sides[side];
            let Some(conn) = side.conns.get_mut(&id) else { continue };
            conn.is_dead = true;
            side.completions.retain(|message| message.id != id);
            side.say(id, Said::Disconnected);
        }
    }

    /// The device of a side is removed: its peers are told nothing.
    pub(super) fn remove(&mut self, at: usize) {
        let side = &mut self.sides[at];
        side.listens = false;
        for (id, conn) in side.conns.clone() {
            side.conns.insert(id, Conn { is_dead: true, ..conn });
            side.say(id, Said::DeviceRemoved);
        }
        side.completions.clear();
        side.manager.handle_listener_lost(0);
    }

    /// A process dies, and another takes its name and address.
    pub(super) fn die(&mut self, at: usize) {
        let life = self.bury(at);
        for (other, side) in self.sides.iter_mut().enumerate() {
            if other != at {
                side.additions.push((at, life));
            }
        }
    }

    /// A process dies, and nobody comes after it.
    pub(super) fn kill(&mut self, at: usize) {
        self.bury(at);
        self.sides[at].additions.clear();
        self.sides[at].listens = false;
    }

    /// What the peers of a dead process hear, and the process that comes after it, with its life.
    fn bury(&mut self, at: usize) -> u64 {
        for conn in self.sides[at].conns.clone().into_values() {
            self.sever(&conn);
        }
        for (_, said) in std::mem::take(&mut self.sides[at].events) {
            if let Said::Request(from, asker, _) = said {
                let conn = Conn { other: Some((from, asker)), ..Conn::default() };
                self.tell_other(&conn, Said::Rejected(None));
            }
        }
        let life = self.sides[at].life + 1;
        let mut lives: Vec<u64> = self.sides.iter().map(|side| side.life).collect();
        lives[at] = life;
        self.sides[at] = Side::new(at, life, &lives, self.queues);
        life
    }
}
