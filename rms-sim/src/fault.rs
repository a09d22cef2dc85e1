//! Random faults from a seed: everything that can break breaks at some time, and is repaired in the end.

use rms_model::{Span, Time};

use crate::check::Violation;
use crate::dice::Dice;
use crate::journal::DiskState;
use crate::server::CrashPoint;
use crate::world::{Item, PhaseFault, Repair, World};

/// Faults at random times, up to a time after which nothing breaks any more.
#[derive(Debug)]
pub struct Storm {
    dice: Dice,
    /// The longest time from one fault to the next.
    longest_gap: Span,
    /// The percentage of faults that wait for a phase of a negotiation.
    ambushes: u32,
}

impl Storm {
    pub fn new(seed: u64) -> Storm {
        let mut dice = Dice::new(seed, STREAM);
        let longest_gap = dice.span(Span::from_secs(2), Span::from_secs(40));
        Storm { dice, longest_gap, ambushes: 0 }
    }

    /// Creates faults many of which hit negotiations in the middle.
    pub fn on_negotiations(seed: u64) -> Storm {
        Storm { ambushes: 40, ..Storm::new(seed) }
    }

    /// Returns when the next fault strikes.
    pub fn next(&mut self, now: Time) -> Time {
        now + self.dice.span(Span::from_millis(1), self.longest_gap)
    }

    /// Injects a fault now, and puts its repair on the agenda.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub fn strike(&mut self, world: &mut World) -> Result<(), Violation> {
        if self.ambushes > 0 && self.dice.chance(self.ambushes) {
            world.ambush = Some(PhaseFault::draw(&mut self.dice));
            return Ok(());
        }
        let nodes: Vec<usize> = (0..world.nodes.len()).collect();
        let node = *self.dice.pick(&nodes).expect("a world has nodes");
        match self.dice.number(0, 13) {
            0 => {
                self.repair(world, 20, Repair::Server);
                world.server_dies()?;
            }
            1 | 2 => {
                let n_out = self.dice.number(0, 4) as usize;
                let points = [CrashPoint::BeforeCommit, CrashPoint::AfterCommit, CrashPoint::AmidEffects(n_out)];
                let point = *self.dice.pick(&points).expect("there are three");
                let back_after = self.dice.span(Span::from_millis(1), Span::from_secs(20));
                world.crash = Some((point, Some(back_after)));
            }
            3 if self.dice.chance(50) => {
                world.nodes[node].dies_after = Some(self.dice.number(0, 3));
            }
            3 => {
                world.agent_dies(node);
                self.repair(world, 30, Repair::Agent(node));
            }
            4 => {
                world.power_off(node);
                self.repair(world, 60, Repair::Node(node));
            }
            5 => world.break_link(node),
            6 => {
                for node in nodes {
                    if self.dice.chance(40) {
                        world.cut_network(node);
                        self.repair(world, 90, Repair::Heal(node));
                    }
                }
            }
            7 => {
                for launcher in 0..world.n_launchers() {
                    if self.dice.chance(50) {
                        world.break_launcher(launcher);
                    }
                }
                for execution in world.executions() {
                    if self.dice.chance(50) {
                        world.break_application(execution);
                    }
                }
            }
            8 => {
                let slow = DiskState::Slow(self.dice.span(Span::from_millis(5), Span::from_secs(3)));
                let weather = [DiskState::Failing, DiskState::Full, slow];
                world.journal.weather = *self.dice.pick(&weather).expect("there are three");
                self.repair(world, 20, Repair::Journal);
            }
            9 => world.supervisor_dies(node),
            10 => world.spawner_dies(node),
            11 => {
                world.disk_is_full(node, true);
                self.repair(world, 60, Repair::Disk(node));
            }
            12 => {
                world.nodes[node].pace = self.dice.span(Span::from_millis(1), Span::from_secs(3));
                self.repair(world, 30, Repair::Pace(node));
            }
            _ => {
                world.links[node].delay = self.dice.span(Span::from_millis(50), Span::from_secs(3));
                self.repair(world, 30, Repair::Speed(node));
            }
        }
        Ok(())
    }

    fn repair(&mut self, world: &mut World, most_secs: i64, repair: Repair) {
        let at = world.now + self.dice.span(Span::from_millis(1), Span::from_secs(most_secs));
        world.agenda.push(at, Item::Repair(repair));
    }

    /// Ends the faults: everything that is broken is repaired now.
    pub fn end(&self, world: &mut World) {
        world.crash = None;
        world.ambush = None;
        world.nodes.iter_mut().for_each(|node| node.dies_after = None);
        let each = [Repair::Agent, Repair::Node, Repair::Heal, Repair::Speed, Repair::Pace, Repair::Disk];
        let repairs = (0..world.nodes.len()).flat_map(|node| each.map(|repair| repair(node)));
        for repair in repairs.chain([Repair::Journal, Repair::Server]).collect::<Vec<_>>() {
            world.agenda.push(world.now, Item::Repair(repair));
        }
    }
}

/// The random stream of faults.
const STREAM: u64 = 1;
