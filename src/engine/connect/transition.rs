//! One connection goes from state to state.

use crate::engine::time::Instant;
use crate::wire::gni::datagram::{Body, Datagram, NameId, Refusal};

use super::Engine;
use super::interface::{End, EndpointId, Event, Reason, Vc};
use super::pair::{Adopted, Place, Said};
use super::table::{Action, Input, Row, action};

impl Engine {
    /// Something happens to the connection of a pair; `said` is the datagram that says it, if one does.
    pub(super) fn apply(&mut self, place: Place, input: Input, said: Option<&Said>, now: Instant) {
        let Some(pair) = self.pairs.get(&place) else { return };
        let (row, is_known, attempts) = (pair.row, said.is_some_and(|said| said.knows), pair.attempts);
        let side = said.and_then(Said::side);
        match action(row, input) {
            Action::Ignore => {}
            Action::Stray => self.counters.stray += 1,
            Action::Begin => {
                self.wish(place);
                self.begin(place, None);
            }
            Action::Accept => self.begin(place, side),
            Action::Wish => self.wish(place),
            Action::Adopt => self.adopt(place, side),
            Action::Unadopt => self.unadopt(place, said, now),
            Action::Proceed => self.proceed(place, now),
            Action::Wait => self.arm(place, now),
            Action::Want => self.want(place),
            Action::Meet => {
                self.adopt(place, side);
                self.connected(place, is_known, now);
                if is_known {
                    self.tell_sender(place, said, Body::Confirm);
                }
            }
            Action::Join => {
                self.adopt(place, side);
                self.connected(place, true, now);
                self.tell_sender(place, said, Body::Confirm);
            }
            Action::Confirm => {
                self.settle(place);
                self.tell_sender(place, said, Body::Confirm);
            }
            Action::Remind if is_known => {
                self.settle(place);
                self.tell_sender(place, said, Body::Confirm);
            }
            Action::Remind => self.remind(place),
            Action::Postpone => {
                self.counters.postponed += 1;
                self.tell_sender(place, said, Body::Later);
            }
            Action::Hold => self.hold_for(place, said),
            Action::Deny => self.tell_sender(place, said, Body::Refuse(Refusal::Gone)),
            Action::Settle => self.settle(place),
            Action::Patience => self.patience(place, now),
            Action::Repeat if attempts < self.limit(row) => self.repeat(place),
            Action::Repeat => self.give_up(place, row, now),
            Action::Fail => self.fail(place, input, said, now),
            Action::Lose => self.end(place, End::Lost(reason(input, said)), now),
            Action::Leave => self.leave(place, now),
            Action::End => {
                self.tell_waiting(place, Refusal::Gone);
                self.end(place, End::Closed, now);
            }
            Action::Drain => self.drain(place, said),
            Action::Acknowledge => {
                self.acknowledge(place, said);
                self.end(place, End::Closed, now);
            }
            Action::Yield => {
                self.acknowledge(place, said);
                self.end(place, End::Failed(Reason::Ended), now);
            }
        }
    }

    /// Goes on with what has waited for the end of a connection, or for the endpoint.
    pub(super) fn resume(&mut self, place: Place, now: Instant) {
        let is_up = |endpoint: &super::Endpoint| endpoint.enabled && !endpoint.shut;
        let may = self.endpoints.get(&place.endpoint).is_some_and(is_up);
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        if !may || !pair.row.is_idle() {
            return;
        }
        if let Some(request) = pair.held.take() {
            self.begin(place, Some(request));
        } else if pair.wanted {
            self.apply(place, Input::Connect, None, now);
        }
    }

    fn begin(&mut self, place: Place, request: Option<Adopted>) {
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        // Four thousand million connections are more than a device sees.
        self.last += 1;
        pair.reset(Row::Preparing);
        pair.vc = self.last;
        pair.adopted = request;
        self.places.insert(self.last, place);
        self.want(place);
    }

    fn wish(&mut self, place: Place) {
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        let first = !pair.wanted && !pair.is_mapped() && pair.row == Row::Connected;
        pair.wanted = true;
        // What is sent to has an address.
        pair.mapped.get_or_insert(pair.asked_for);
        if first {
            self.events.push_back(Event::Mapped { vc: Vc(pair.vc) });
        }
    }

    fn want(&mut self, place: Place) {
        let Some((vc, peer)) = self.pairs.get(&place).map(|pair| (pair.vc, pair.incarnation())) else {
            return;
        };
        let peer = name(place, peer);
        self.events.push_back(Event::MailboxWanted {
            vc: Vc(vc),
            endpoint: EndpointId(place.endpoint),
            peer,
        });
    }

    fn adopt(&mut self, place: Place, side: Option<Adopted>) {
        if let Some(pair) = self.pairs.get_mut(&place) {
            pair.adopted = side;
        }
    }

    /// Whoever had asked does not any more. If nobody else wants the connection, it has come to nothing.
    fn unadopt(&mut self, place: Place, said: Option<&Said>, now: Instant) {
        self.tell_sender(place, said, Body::Disconnected);
        self.adopt(place, None);
        if self.pairs.get(&place).is_some_and(|pair| !pair.wanted) {
            let why = if said.is_some() { Reason::Ended } else { Reason::Renewed };
            self.end(place, End::Failed(why), now);
        }
    }

    /// The mailbox is there: answers whoever has asked, or asks.
    fn proceed(&mut self, place: Place, now: Instant) {
        self.disarm(place);
        let own = self.endpoints.get(&place.endpoint).map(|endpoint| endpoint.name);
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        let itself = own.filter(|own| (own.device, own.cdm_id) == (place.device, place.cdm_id));
        if let (Some(itself), Some(attributes)) = (itself, pair.own) {
            // The mailbox leads back to where it begins.
            pair.adopted = Some(Adopted { incarnation: itself.incarnation, vc: pair.vc, attributes });
            self.connected(place, true, now);
        } else if pair.adopted.is_some() {
            self.connected(place, false, now);
        } else {
            pair.row = Row::Asking;
            self.post(place);
        }
    }

    /// Both mailboxes are known. Unless a request is on its way, the peer is told at once; it is told again when
    /// nothing is heard of it.
    fn connected(&mut self, place: Place, settled: bool, now: Instant) {
        self.disarm(place);
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        pair.row = Row::Connected;
        pair.attempts = 0;
        pair.settled = settled;
        pair.due = false;
        let Some(Adopted { incarnation, attributes, .. }) = pair.adopted else { return };
        let (vc, mapped, asked) = (Vc(pair.vc), pair.is_mapped(), pair.asked);
        let (endpoint, peer) = (EndpointId(place.endpoint), name(place, incarnation));
        self.events.push_back(Event::Connected { vc, endpoint, peer, attributes, mapped });
        match (settled, asked) {
            (true, _) => {}
            (false, true) => self.arm(place, now),
            (false, false) => self.post(place),
        }
    }

    fn settle(&mut self, place: Place) {
        self.disarm(place);
        if let Some(pair) = self.pairs.get_mut(&place) {
            pair.settled = true;
            pair.due = false;
        }
    }

    /// There is something to be sent.
    fn post(&mut self, place: Place) {
        self.disarm(place);
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        if !pair.due {
            pair.due = true;
            self.due.push_back(place);
        }
    }

    /// A peer that asks again did not know this side when it did.
    fn remind(&mut self, place: Place) {
        if self.pairs.get(&place).is_some_and(|pair| !pair.settled) {
            self.post(place);
        }
    }

    fn patience(&mut self, place: Place, now: Instant) {
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        pair.attempts = 0;
        if !pair.due {
            self.arm(place, now);
        }
    }

    const fn limit(&self, row: Row) -> u32 {
        if matches!(row, Row::Closing) { self.settings.farewells } else { self.settings.attempts }
    }

    fn repeat(&mut self, place: Place) {
        if let Some(pair) = self.pairs.get_mut(&place) {
            pair.attempts += 1;
        }
        self.post(place);
    }

    fn give_up(&mut self, place: Place, row: Row, now: Instant) {
        self.counters.silent += 1;
        let end = match row {
            Row::Closing => End::Closed,
            Row::Connected => {
                self.tell_waiting(place, Refusal::Gone);
                End::Lost(Reason::Silent)
            }
            _ => End::Failed(Reason::Silent),
        };
        self.end(place, end, now);
    }

    fn fail(&mut self, place: Place, input: Input, said: Option<&Said>, now: Instant) {
        if input == Input::Denied {
            self.tell_waiting(place, Refusal::NoResources);
        }
        self.end(place, End::Failed(reason(input, said)), now);
    }

    fn leave(&mut self, place: Place, now: Instant) {
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        let is_loop = pair.adopted.is_some_and(|adopted| adopted.vc == pair.vc) && {
            let own = self.endpoints.get(&place.endpoint).map(|endpoint| endpoint.name);
            own.is_some_and(|own| (own.device, own.cdm_id) == (place.device, place.cdm_id))
        };
        // What nobody has been told of, nobody need be told the end of.
        let is_secret = pair.row == Row::Asking && !pair.asked;
        if is_loop || is_secret {
            return self.end(place, End::Closed, now);
        }
        pair.row = Row::Closing;
        pair.attempts = 0;
        self.post(place);
    }

    fn drain(&mut self, place: Place, said: Option<&Said>) {
        self.disarm(place);
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        pair.row = Row::Draining;
        pair.wanted = false;
        pair.due = false;
        let sent = if let Some(Said { body: Body::Disconnect { sent }, .. }) = said { *sent } else { 0 };
        self.events.push_back(Event::Closing { vc: Vc(pair.vc), sent });
    }

    /// A request that comes while an earlier connection is not over waits for that, unless it takes that for alive.
    fn hold_for(&mut self, place: Place, said: Option<&Said>) {
        let Some((pair, said)) = self.pairs.get_mut(&place).zip(said) else { return };
        if !said.knows {
            pair.held = said.side();
            self.counters.postponed += 1;
            self.tell_sender(place, Some(said), Body::Later);
        }
    }

    /// Tells the peer that is known that its connection is over.
    fn acknowledge(&mut self, place: Place, said: Option<&Said>) {
        if said.is_some() {
            return self.tell_sender(place, said, Body::Disconnected);
        }
        if let Some(adopted) = self.pairs.get(&place).and_then(|pair| pair.adopted) {
            self.tell(place, adopted.incarnation, adopted.vc, Body::Disconnected);
        }
    }

    /// Refuses whoever has asked and waits, or believes in a connection that is given up.
    fn tell_waiting(&mut self, place: Place, why: Refusal) {
        let Some(pair) = self.pairs.get(&place) else { return };
        if let Some(adopted) = pair.adopted.filter(|_| pair.row != Row::Closing) {
            self.tell(place, adopted.incarnation, adopted.vc, Body::Refuse(why));
        }
    }

    fn tell_sender(&mut self, place: Place, said: Option<&Said>, body: Body) {
        if let Some(said) = said {
            self.tell(place, said.source.incarnation, said.vc, body);
        }
    }

    fn tell(&mut self, place: Place, incarnation: u64, vc: u32, body: Body) {
        let Some(pair) = self.pairs.get(&place) else { return };
        let (Some(endpoint), Some(route)) = (self.endpoints.get(&place.endpoint), pair.route) else { return };
        let source_vc = if body == Body::Confirm { pair.vc } else { 0 };
        let answer = Datagram {
            credentials: self.settings.credentials,
            target: name(place, incarnation),
            source: endpoint.name,
            target_vc: vc,
            source_vc,
            body,
        };
        self.answer(route, answer);
    }

    /// The connection is over, and whatever has waited for that begins.
    fn end(&mut self, place: Place, end: End, now: Instant) {
        self.disarm(place);
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        let (vc, peer) = (pair.vc, name(place, pair.incarnation()));
        if end != End::Closed {
            pair.wanted = false;
        }
        pair.reset(if end == End::Closed { Row::Terminated } else { Row::Error });
        self.places.remove(&vc);
        self.events.push_back(Event::Ended { vc: Vc(vc), endpoint: EndpointId(place.endpoint), peer, end });
        self.resume(place, now);
    }
}

fn name(place: Place, incarnation: u64) -> NameId {
    NameId { device: place.device, cdm_id: place.cdm_id, incarnation }
}

fn reason(input: Input, said: Option<&Said>) -> Reason {
    match (input, said.map(|said| said.body)) {
        (Input::Denied, _) => Reason::NoResources,
        (Input::Died, _) => Reason::Died,
        (_, Some(Body::Refuse(why))) => Reason::Refused(why),
        _ => Reason::Renewed,
    }
}
