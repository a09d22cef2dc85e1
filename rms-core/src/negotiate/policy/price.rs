//! How the server negotiates the price of nodes that it gives (002, §6: an offer is countered at a lower price).

use negotiation::{Price, Rules, Side};
use rms_model::settings::MAX_PRICE;

/// The server's side of a negotiation about a price.
///
/// Its first proposal asks for the list price, its last possible one for the floor, and those between lie on a straight
/// line: no proposal is worse for the application than the one before, whatever was bid, and the negotiation ends
/// within the allowed rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pricing {
    list: u64,
    floor: u64,
    /// The number of proposals that the server can make.
    n_proposals: u16,
}

/// The server's reply to a bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The server agrees to the bid.
    Accept,
    /// The server asks for this price.
    Counter(Price),
    /// The bid is too low, and no round is left.
    Reject,
}

impl Pricing {
    /// Creates the server's side of a negotiation that `initiator` opened, with a list price and a floor in percent of
    /// it.
    pub fn new(list: u64, floor_percent: u32, initiator: Side, rules: &Rules) -> Pricing {
        let list = list.min(MAX_PRICE);
        // Rounded up: never below the setting.
        let floor = (list * u64::from(floor_percent.min(100))).div_ceil(100);
        let n_proposals = match initiator {
            Side::Rms => rules.max_rounds.div_ceil(2),
            Side::Application => rules.max_rounds / 2,
        };
        Pricing { list, floor, n_proposals }
    }

    /// Returns what the server's first proposal asks for.
    pub fn opening(&self) -> Price {
        self.asked(0)
    }

    /// Returns the lowest price that it agrees to.
    pub fn floor(&self) -> Price {
        Price(self.floor)
    }

    /// Returns the reply to a bid after `n_made` proposals of the server. A bid is accepted if it is as much as the
    /// server would ask for next, or all that it can still get.
    pub fn reply(&self, bid: Price, n_made: u16) -> Reply {
        let can_counter = n_made < self.n_proposals;
        let next = self.asked(n_made);
        if bid >= next || (!can_counter && bid.0 >= self.floor) {
            Reply::Accept
        } else if can_counter {
            Reply::Counter(next)
        } else {
            Reply::Reject
        }
    }

    /// Returns what is asked for after `n_made` proposals.
    fn asked(&self, n_made: u16) -> Price {
        let steps = u64::from(self.n_proposals.saturating_sub(1));
        let step = u64::from(n_made).min(steps);
        // At most 2⁴⁰ · 2¹⁶.
        let conceded = ((self.list - self.floor) * step).checked_div(steps).unwrap_or(0);
        Price(self.list - conceded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_kit::for_seeds;

    fn rules(max_rounds: u16) -> Rules {
        Rules { max_rounds, ..Rules::default() }
    }

    /// 002's example of a priced offer, in thousandths.
    #[test]
    fn a_lower_bid_is_countered_then_accepted_or_rejected() {
        let pricing = Pricing::new(10_000, 80, Side::Rms, &rules(6));
        assert_eq!(pricing.opening(), Price(10_000));
        assert_eq!(pricing.reply(Price(9_000), 1), Reply::Accept, "it would ask for 9000 next");
        assert_eq!(pricing.reply(Price(7_000), 1), Reply::Counter(Price(9_000)));
        assert_eq!(pricing.reply(Price(7_500), 2), Reply::Counter(Price(8_000)));
        assert_eq!(pricing.reply(Price(7_900), 3), Reply::Reject);
        assert_eq!(pricing.reply(Price(8_000), 3), Reply::Accept);
    }

    #[test]
    fn a_firm_price_is_a_price() {
        let pricing = Pricing::new(500, 100, Side::Application, &rules(20));
        assert_eq!(pricing.reply(Price(499), 0), Reply::Counter(Price(500)));
        assert_eq!(pricing.reply(Price(499), 9), Reply::Counter(Price(500)));
        assert_eq!(pricing.reply(Price(499), 10), Reply::Reject);
        assert_eq!(pricing.reply(Price(500), 0), Reply::Accept);
    }

    #[test]
    fn what_costs_nothing_is_never_haggled_about() {
        let pricing = Pricing::new(0, 100, Side::Application, &rules(20));
        assert_eq!(pricing.reply(Price(0), 0), Reply::Accept);
        assert_eq!(pricing.reply(Price(7), 0), Reply::Accept);
    }

    #[test]
    fn every_talk_ends_and_no_proposal_is_worse_than_the_one_before() {
        for_seeds("every_talk_ends_and_no_proposal", 2000, |dice| {
            let (max_rounds, percent) = (dice.number(1, 40) as u16, dice.number(0, 120));
            let list = dice.roll() >> dice.number(0, 63);
            let initiator = if dice.chance(50) { Side::Rms } else { Side::Application };
            let pricing = Pricing::new(list, percent, initiator, &rules(max_rounds));
            let floor = pricing.floor;
            let mut asked = pricing.opening();
            let (mut round, mut n_made) = if initiator == Side::Rms { (1, 1) } else { (0, 0) };
            let mut bid = Price(0);
            // The application raises its bid as long as there are rounds.
            while round < max_rounds {
                round += 1;
                bid = Price(bid.0.saturating_add(dice.roll() >> dice.number(0, 63)));
                match pricing.reply(bid, n_made) {
                    Reply::Accept => {
                        assert!(bid.0 >= floor, "{pricing:?} sold at {bid:?}");
                        return;
                    }
                    Reply::Counter(price) => {
                        assert!(round < max_rounds, "a round too many");
                        assert!(price <= asked && price.0 >= floor && bid < price, "{pricing:?}: {price:?}");
                        asked = price;
                        n_made += 1;
                        round += 1;
                    }
                    Reply::Reject => {
                        assert!(round + 1 > max_rounds && bid.0 < floor, "{pricing:?} gave up at {bid:?}");
                        return;
                    }
                }
            }
        });
    }
}
