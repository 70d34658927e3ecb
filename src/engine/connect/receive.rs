//! Datagrams, as they come: which connection they are of, and whether that is the present one.

use crate::engine::time::Instant;
use crate::wire::gni::datagram::{Body, Datagram, Foreign, Malformed, NameId, Refusal};

use super::Engine;
use super::interface::Route;
use super::pair::{Mark, Pair, Place, Said};
use super::table::Input;

/// Of when a datagram is, as far as its numbers tell.
enum Age {
    /// Of a life of the peer that has ended.
    Dead,
    /// Of an earlier life or connection than is known.
    Past,
    /// Of the latest that is known.
    Known,
    /// Of a later one.
    First,
}

impl Engine {
    /// Somebody has sent these bytes, on this way.
    pub fn handle_datagram(&mut self, bytes: &[u8], route: Route, now: Instant) {
        self.handle_datagram_of(None, bytes, route, now);
    }

    /// The same of this process, if it is known which: the segment that it tells of is taken for one of its own, whatever it says.
    pub fn handle_datagram_of(&mut self, process: Option<u32>, bytes: &[u8], route: Route, now: Instant) {
        match Datagram::parse(bytes, &self.settings.key) {
            Ok(mut datagram) => {
                if let (Some(process), Body::Request(told) | Body::Response(told)) =
                    (process, &mut datagram.body)
                {
                    told.segment.pid = process;
                }
                self.hear(&datagram, route, now);
            }
            Err(Malformed::Forged) => self.counters.forged += 1,
            Err(Malformed::Version(foreign)) => self.hear_foreign(&foreign, route, now),
            Err(Malformed::Length | Malformed::Kind) => self.counters.malformed += 1,
        }
    }

    /// Another version speaks. What it refuses is refused; what it asks for is.
    fn hear_foreign(&mut self, foreign: &Foreign, route: Route, now: Instant) {
        self.counters.foreign += 1;
        let Foreign { target, source, target_vc, source_vc, .. } = *foreign;
        if foreign.is_request {
            let credentials = self.settings.credentials;
            let body = Body::Refuse(Refusal::Version);
            let refusal = Datagram {
                credentials,
                target: source,
                source: target,
                target_vc: source_vc,
                source_vc: 0,
                body,
            };
            self.answer(route, refusal);
        } else if foreign.is_refusal {
            let credentials = self.settings.credentials;
            let body = Body::Refuse(Refusal::Version);
            self.hear_of(
                &Datagram { credentials, target, source, target_vc, source_vc: 0, body },
                route,
                now,
            );
        }
    }

    /// A genuine datagram has come.
    pub(super) fn hear(&mut self, datagram: &Datagram, route: Route, now: Instant) {
        self.counters.received += 1;
        let (own, other) = (self.settings.credentials, datagram.credentials);
        let wrong = if own.cookie != other.cookie { Refusal::Cookie } else { Refusal::Domain };
        let is_about_that = matches!(datagram.body, Body::Refuse(Refusal::Cookie | Refusal::Domain));
        if own != other && !is_about_that {
            self.counters.strangers += 1;
            if matches!(datagram.body, Body::Request(_)) {
                self.refuse(datagram, route, wrong);
            }
            return;
        }
        self.hear_of(datagram, route, now);
    }

    /// Of which endpoint, of which life of it?
    fn hear_of(&mut self, datagram: &Datagram, route: Route, now: Instant) {
        let target = datagram.target;
        let Some(endpoint) = self.endpoints.get(&target.cdm_id).filter(|of| of.name.device == target.device)
        else {
            self.counters.misdirected += 1;
            return match datagram.body {
                Body::Request(_) if datagram.target_vc == 0 => {
                    self.refuse(datagram, route, Refusal::NoEndpoint)
                }
                // Only a refusal can come from nobody.
                Body::Disconnect { .. } => self.refuse(datagram, route, Refusal::Gone),
                _ => self.deny(datagram, route),
            };
        };
        let (life, shut, enabled) = (endpoint.name.incarnation, endpoint.shut, endpoint.enabled);
        if target.incarnation != 0 && target.incarnation != life {
            self.counters.misdirected += 1;
            if target.incarnation < life {
                self.deny(datagram, route);
            }
            return;
        }
        let source = datagram.source;
        let place = Place { endpoint: target.cdm_id, device: source.device, cdm_id: source.cdm_id };
        let is_new = !self.pairs.contains_key(&place);
        let asks = matches!(datagram.body, Body::Request(_)) && datagram.target_vc == 0;
        if asks && shut {
            self.counters.misdirected += 1;
            return self.refuse(datagram, route, Refusal::NoEndpoint);
        }
        if is_new && !asks {
            self.counters.unconnected += 1;
            return self.deny(datagram, route);
        }
        if is_new && !self.make_room(place.endpoint) {
            return self.postpone(datagram, route);
        }
        self.pairs.entry(place).or_insert_with(Pair::new);
        match self.age(place, datagram, now) {
            Age::Past => self.counters.stale += 1,
            Age::Dead => {
                self.counters.stale += 1;
                self.deny(datagram, route);
            }
            Age::Known => self.hear_pair(place, datagram, route, now, false),
            Age::First if enabled || !asks => self.hear_pair(place, datagram, route, now, true),
            Age::First => self.hold(place, datagram, route),
        }
    }

    /// The first datagram of a later life of the peer, or of a later connection, ends what was.
    fn age(&mut self, place: Place, datagram: &Datagram, now: Instant) -> Age {
        let Some(pair) = self.pairs.get_mut(&place) else { return Age::Past };
        let heard = Mark { incarnation: datagram.source.incarnation, vc: datagram.source_vc };
        if heard.incarnation == 0 {
            return Age::Known;
        }
        if heard.incarnation <= pair.dead {
            return Age::Dead;
        }
        let is_later_life = heard.incarnation > pair.mark.incarnation;
        if is_later_life || heard.incarnation == pair.mark.incarnation && heard.vc > pair.mark.vc {
            let renews = match pair.adopted {
                Some(adopted) => Mark { incarnation: adopted.incarnation, vc: adopted.vc } < heard,
                None => is_later_life && pair.mark.incarnation != 0,
            };
            pair.mark = heard;
            pair.held = None;
            if renews {
                self.apply(place, Input::Renewed, None, now);
            }
            return Age::First;
        }
        let is_past = heard.incarnation < pair.mark.incarnation || heard.vc != 0 && heard.vc < pair.mark.vc;
        if is_past { Age::Past } else { Age::Known }
    }

    /// A request for an endpoint that is not enabled yet.
    fn hold(&mut self, place: Place, datagram: &Datagram, route: Route) {
        if let Some(pair) = self.pairs.get_mut(&place) {
            pair.route = Some(route);
            pair.held = Said::of(datagram, 0).side();
        }
        self.postpone(datagram, route);
    }

    fn postpone(&mut self, datagram: &Datagram, route: Route) {
        self.counters.postponed += 1;
        self.reply(datagram, route, Body::Later);
    }

    /// Of which connection of this side, and what of it?
    fn hear_pair(&mut self, place: Place, datagram: &Datagram, route: Route, now: Instant, is_first: bool) {
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        pair.route = Some(route);
        let said = Said::of(datagram, pair.vc);
        let is_same = pair
            .adopted
            .is_some_and(|adopted| (adopted.incarnation, adopted.vc) == (said.source.incarnation, said.vc));
        let is_held = pair.held.is_some_and(|held| held.vc == said.vc);
        // A number of this side that is not the present one is of the past.
        let is_mistaken = datagram.target_vc != 0 && !said.knows;
        let input = match datagram.body {
            _ if is_mistaken => None,
            Body::Request(_) if is_same => Some(Input::RequestAgain),
            Body::Request(_) if is_held => return self.postpone(datagram, route),
            Body::Request(_) if is_first => Some(Input::Request),
            Body::Response(_) if is_same => Some(Input::ResponseAgain),
            Body::Response(_) if is_first => Some(Input::Response),
            Body::Request(_) | Body::Response(_) => None,
            Body::Confirm => is_same.then_some(Input::Confirm),
            Body::Later => Some(Input::Later),
            Body::Refuse(Refusal::Gone) => Some(Input::Gone),
            Body::Refuse(_) => Some(Input::Refused),
            Body::Disconnect { .. } if is_held => {
                pair.held = None;
                None
            }
            Body::Disconnect { .. } => (is_same || said.knows).then_some(Input::Disconnect),
            Body::Disconnected => Some(Input::Disconnected),
        };
        match input {
            Some(input) => self.apply(place, input, Some(&said), now),
            None => {
                self.counters.unconnected += 1;
                self.deny(datagram, route);
            }
        }
    }

    /// Says that there is no such connection, to whoever believes that there is.
    fn deny(&mut self, datagram: &Datagram, route: Route) {
        match datagram.body {
            Body::Request(_) | Body::Response(_) | Body::Confirm => {
                self.refuse(datagram, route, Refusal::Gone)
            }
            Body::Disconnect { .. } => self.reply(datagram, route, Body::Disconnected),
            Body::Later | Body::Refuse(_) | Body::Disconnected => {}
        }
    }

    fn refuse(&mut self, datagram: &Datagram, route: Route, why: Refusal) {
        self.reply(datagram, route, Body::Refuse(why));
    }

    /// Answers a datagram without anything to remember.
    fn reply(&mut self, datagram: &Datagram, route: Route, body: Body) {
        let here = self.endpoints.get(&datagram.target.cdm_id).map(|endpoint| endpoint.name);
        let here = here.filter(|name| name.device == datagram.target.device);
        let nobody = NameId { incarnation: 0, ..datagram.target };
        let answer = Datagram {
            credentials: self.settings.credentials,
            target: datagram.source,
            source: here.unwrap_or(nobody),
            target_vc: datagram.source_vc,
            source_vc: 0,
            body,
        };
        self.answer(route, answer);
    }
}
