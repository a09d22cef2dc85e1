//! Faults and repairs of processes, machines, links and the network.

use rms_model::Span;

use super::{Item, Repair, USUAL_DELAY, World};
use crate::check::Violation;
use crate::journal::DiskState;
use crate::link::Lane;
use crate::server::Server;

impl World {
    /// Breaks the link; both ends will notice.
    pub(crate) fn break_link(&mut self, node: usize) {
        let link = &mut self.links[node];
        let epoch = link.epoch;
        link.die();
        let (agent, server) = (self.dice.span(Span::ZERO, IDLE), self.dice.span(Span::ZERO, IDLE));
        self.agenda.push(self.now + agent, Item::AgentNotices { node, epoch });
        self.agenda.push(self.now + server, Item::ServerNotices { node, epoch });
    }

    /// Kills an agent with kill -9; its successor knows nothing of its link.
    pub(crate) fn agent_dies(&mut self, node: usize) {
        self.trace.note(self.now, format_args!("{} loses its agent", self.nodes[node].name));
        let reads_orders = self.dice.chance(50);
        self.nodes[node].kill_agent(reads_orders);
        self.links[node].agent_side = None;
        self.break_link(node);
    }

    pub(crate) fn start_agent(&mut self, node: usize) {
        if self.nodes[node].is_on && !self.nodes[node].has_agent() {
            let found = self.nodes[node].start_agent();
            self.trace.note(self.now, format_args!("{} has a new agent", self.nodes[node].name));
            self.nodes[node].hear(self.now, found);
            self.wake_later(node);
            self.agenda.push(self.now, Item::Dial { node, life: self.nodes[node].life });
        }
    }

    /// Kills the server's process: what is not durable is forgotten, and every link is dead.
    pub(crate) fn server_dies(&mut self) -> Result<(), Violation> {
        let Some(server) = self.server.take() else { return Ok(()) };
        // What was being written may be on the disk.
        if let Some(write) = server.server_loop.write()
            && self.dice.chance(50)
        {
            // Nobody learns the result of this write.
            let _ = write.to(&mut self.journal);
            self.look_at_facts(self.now, true)?;
        }
        // Sometimes the whole machine dies: what was only written, and not synced, is lost, too.
        if self.dice.chance(50) {
            self.journal.lose_power(&mut self.dice);
            self.n_traced = self.journal.facts().len();
            self.written.retain(|written| written.n_facts <= self.n_traced);
            self.trace.note(self.now, format_args!("the server's machine loses its power"));
        } else {
            self.trace.note(self.now, format_args!("the server dies"));
        }
        self.journal.settle(self.dice.chance(50));
        self.look_at_facts(self.now, true)?;
        self.crash = None;
        self.checks.server_died();
        for node in 0..self.nodes.len() {
            if self.links[node].is_alive {
                self.break_link(node);
            }
        }
        self.launchers_lose_the_server();
        self.applications_lose_the_server();
        self.asks_are_lost();
        self.accepted.clear();
        self.check_restore()
    }

    pub(crate) fn server_starts(&mut self) -> Result<(), Violation> {
        if self.server.is_some() {
            return Ok(());
        }
        self.trace.note(self.now, format_args!("the server starts"));
        self.checks.hindered(self.now);
        self.server = Some(Server::restore(self.config.clone(), self.now, &self.journal));
        Ok(())
    }

    pub(super) fn repair(&mut self, repair: Repair) -> Result<(), Violation> {
        match repair {
            Repair::Server => self.server_starts(),
            Repair::Agent(node) => {
                self.start_agent(node);
                Ok(())
            }
            Repair::Node(node) => {
                self.nodes[node].is_on = true;
                self.start_agent(node);
                Ok(())
            }
            Repair::Heal(node) => {
                self.join_network(node);
                Ok(())
            }
            Repair::Journal => {
                self.journal.weather = DiskState::Fine;
                Ok(())
            }
            Repair::Pace(node) => {
                self.nodes[node].pace = Span::ZERO;
                Ok(())
            }
            Repair::Disk(node) => {
                self.disk_is_full(node, false);
                Ok(())
            }
            Repair::Speed(node) => {
                self.links[node].delay = USUAL_DELAY;
                Ok(())
            }
        }
    }

    /// Kills a supervisor with kill -9, whatever it does.
    pub(crate) fn supervisor_dies(&mut self, node: usize) {
        let seats = self.nodes[node].seat_names();
        if let Some(seat) = self.dice.pick(&seats) {
            self.supervisor_is_killed(node, seat);
        }
    }

    pub(crate) fn supervisor_is_killed(&mut self, node: usize, seat: &str) {
        self.trace.note(self.now, format_args!("{} loses supervisor {seat}", self.nodes[node].name));
        self.nodes[node].kill_seat(self.now, seat);
        self.wake_later(node);
    }

    pub(crate) fn spawner_dies(&mut self, node: usize) {
        self.trace.note(self.now, format_args!("{} loses its spawner", self.nodes[node].name));
        self.nodes[node].kill_spawner(self.now);
        self.wake_later(node);
    }

    /// Makes the disk of a node full, or writable again.
    pub(crate) fn disk_is_full(&mut self, node: usize, is_full: bool) {
        self.trace.note(self.now, format_args!("the disk of {} is full: {is_full}", self.nodes[node].name));
        self.nodes[node].set_full(self.now, is_full);
        self.wake_later(node);
    }

    /// Powers a machine off, and with it every process.
    pub(crate) fn power_off(&mut self, node: usize) {
        self.trace.note(self.now, format_args!("{} goes down", self.nodes[node].name));
        for (job, run) in self.nodes[node].alive() {
            self.checks.vanished(&self.nodes[node].name, job, run);
            if self.nodes[node].is_first_of((job, run)) {
                self.application_dies((job, run));
            }
        }
        self.nodes[node].power_off();
        self.links[node].agent_side = None;
        self.break_link(node);
    }

    /// Cuts a node off the network; a link that idles too long is dead.
    pub(crate) fn cut_network(&mut self, node: usize) {
        let link = &mut self.links[node];
        if !link.is_cut {
            link.is_cut = true;
            link.n_cuts += 1;
            self.agenda.push(self.now + IDLE, Item::IdleOut { node, n_cuts: link.n_cuts });
            self.trace.note(self.now, format_args!("{} is cut off", self.nodes[node].name));
            self.applications_are_cut_off(node);
        }
    }

    /// Reconnects a node to the network; messages that waited on both sides are sent again.
    pub(crate) fn join_network(&mut self, node: usize) {
        if self.links[node].is_cut {
            self.links[node].is_cut = false;
            self.trace.note(self.now, format_args!("{} is reached again", self.nodes[node].name));
            let at = self.now + self.links[node].delay;
            self.agenda.push(at, Item::Pump { node, lane: Lane::Up });
            self.agenda.push(at, Item::Pump { node, lane: Lane::Down });
        }
    }
}

/// The longest time until an end notices that a link is dead.
const IDLE: Span = Span::from_secs(10);
