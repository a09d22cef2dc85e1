//! A session: the negotiator, the thread that takes its events, and the operations that the C functions call.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use launcher_sdk::negotiator::{
    ActError, ConnectError, Direction, Event, Holding, HostfileStyle, JobEnvironment, Limits, NegotiationId,
    Negotiator, NegotiatorError, Policy, Reason, Template, Want,
};
use rms_model::Time;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::breakpoint::{Breakpoint, Release};
use crate::callback::Callback;
use crate::counter::Counter;
use crate::failure::Failure;
use crate::guard;
use crate::mailbox::{Mailbox, Taken};
use crate::promised::Promised;
use crate::thread::spawn;
use crate::told;

/// An open session. Any thread may use it at any time.
#[derive(Debug)]
pub struct Session {
    negotiator: Negotiator,
    /// Callers block on it, each in its own thread; it does nothing else.
    runtime: Runtime,
    /// The timeout for an answer of the RMS.
    patience: Duration,
    shared: Arc<Shared>,
    callback: Mutex<Option<Callback>>,
    pump: Mutex<Option<JoinHandle<()>>>,
}

/// State shared between the event thread and the callers.
#[derive(Debug)]
struct Shared {
    mailbox: Arc<Mailbox>,
    closed: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The latest proposals of the RMS that wait for an answer.
    offers: BTreeMap<NegotiationId, Template>,
    /// Also what was heard before the library answers the application's offers.
    promised: Promised,
    /// Present if the library answers the application's offers.
    breakpoint: Option<Breakpoint>,
}

/// Limits, and whether the library answers within them on its own.
#[derive(Debug)]
pub struct Declaration {
    pub limits: Limits,
    pub is_automatic: bool,
}

type Connected = Result<Negotiator, ConnectError>;

/// A change as it is reported to C.
#[derive(Debug)]
pub struct Told {
    /// `None` if a stage begins, another party requested the change, or nodes are lost.
    pub id: Option<NegotiationId>,
    pub direction: Direction,
    pub nodes: Vec<String>,
    pub is_done: bool,
    pub generation: u32,
    pub n_after: u32,
}

impl Session {
    /// Connects as the negotiator of the job that this process belongs to.
    ///
    /// # Errors
    /// The process belongs to no job, the RMS is unreachable or refuses, or the system lacks a resource.
    pub fn connect(patience: Duration, survives_loss: bool) -> Result<Session, Failure> {
        let environment = JobEnvironment { patience, survives_loss, ..JobEnvironment::read()? };
        let mailbox =
            Mailbox::new().map_err(|source| Failure::Io { what: "no descriptor for events".into(), source })?;
        let shared = Arc::new(Shared { mailbox: Arc::new(mailbox), closed: Notify::new(), state: Mutex::default() });
        let (tell, told) = mpsc::sync_channel(1);
        let (of_caller, of_pump) = (runtime()?, runtime()?);
        guard::has_threads();
        // This thread also connects, so that no signal is delivered in the thread that the negotiator starts either,
        // and the caller can be interrupted while it waits.
        let pump = spawn("rms-events", {
            let shared = Arc::clone(&shared);
            move || of_pump.block_on(shared.connect_and_pump(environment, &tell))
        })?;
        let negotiator = told.recv().map_err(|_| Failure::Panicked("the thread that connects has ended".into()))??;
        let (callback, pump) = (Mutex::default(), Mutex::new(Some(pump)));
        Ok(Session { negotiator, runtime: of_caller, patience, shared, callback, pump })
    }

    pub fn mailbox(&self) -> &Mailbox {
        &self.shared.mailbox
    }

    /// Takes the next event that is still current; waits up to `limit` for it, or forever.
    pub fn next_event(&self, limit: Option<Duration>) -> Taken {
        // A time too long to represent means forever.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.shared.mailbox.take(left) {
                Taken::Event(event) if !is_current(&self.negotiator, &event) => {}
                taken => return taken,
            }
        }
    }

    /// Returns the time by the clock of the offers' deadlines.
    pub fn now(&self) -> Time {
        self.negotiator.now()
    }

    pub fn holding(&self) -> Holding {
        self.negotiator.holding()
    }

    pub fn write_hostfile(&self, path: Option<PathBuf>) -> Result<(), Failure> {
        let path = path.or_else(|| std::env::var_os("RMS_HOSTFILE").map(PathBuf::from));
        let path = path.ok_or_else(|| Failure::Invalid("path is NULL, and RMS_HOSTFILE is not set".to_owned()))?;
        Ok(self.negotiator.write_hostfile(path, HostfileStyle::OpenMpi)?)
    }

    pub fn declare(&self, declaration: Declaration) -> Result<(), Failure> {
        let Declaration { limits, is_automatic } = declaration;
        self.wait(self.negotiator.declare(limits.clone()))?;
        // First, as otherwise an agreement that the policy reaches would not be recorded.
        self.shared.keep_breakpoints(is_automatic, &self.negotiator.holding());
        self.wait(self.negotiator.answer_with(is_automatic.then(|| Policy::within(limits))))
    }

    pub fn ask(&self, want: Want) -> Result<NegotiationId, Failure> {
        self.wait(self.negotiator.request(want)).map(|negotiation| negotiation.id())
    }

    pub fn accept(&self, id: NegotiationId) -> Result<(), Failure> {
        self.wait(self.negotiator.negotiation(id).accept())
    }

    pub fn counter(&self, id: NegotiationId, counter: Counter) -> Result<(), Failure> {
        if let Some(deadline) = counter.deadline.filter(|deadline| *deadline <= self.now()) {
            return Err(NegotiatorError::DeadlineOver(self.now().since(deadline)).into());
        }
        let offer = self.shared.state().offers.get(&id).cloned();
        let offer = offer.ok_or_else(|| self.nothing_to_counter(id))?;
        let items = counter.items(&offer, &self.holding(), |cluster| self.negotiator.cluster_name(cluster))?;
        self.wait(self.negotiator.negotiation(id).counter(items))
    }

    /// Returns the failure for a counter without a standing proposal of the RMS, the same as for an accept.
    fn nothing_to_counter(&self, id: NegotiationId) -> Failure {
        let phase = self.negotiator.negotiation(id).phase();
        NegotiatorError::from(phase.map_or(ActError::NoSuch(id), ActError::NotNow)).into()
    }

    pub fn reject(&self, id: NegotiationId) -> Result<(), Failure> {
        self.wait(self.negotiator.negotiation(id).reject(Reason::Declined))
    }

    pub fn withdraw(&self, id: NegotiationId) -> Result<(), Failure> {
        self.wait(self.negotiator.negotiation(id).withdraw())
    }

    /// Releases nodes. If `nodes` is empty, those that were agreed, or else the last ones; without `id`, for the next
    /// stage.
    pub fn release(&self, id: Option<NegotiationId>, nodes: Vec<String>) -> Result<(), Failure> {
        match id.map(|id| self.negotiator.negotiation(id)) {
            None => self.wait(self.negotiator.free(nodes)),
            Some(negotiation) if nodes.is_empty() => self.wait(negotiation.release_last()),
            Some(negotiation) => self.wait(negotiation.release(nodes)),
        }?;
        self.shared.state().promised.released(id);
        Ok(())
    }

    /// Returns what the application has to do at a breakpoint.
    pub fn breakpoint(&self) -> Result<Option<Told>, Failure> {
        let holding = self.holding();
        let mut state = self.shared.state();
        let breakpoint = state
            .breakpoint
            .as_mut()
            .ok_or_else(|| Failure::NotNow("call rms_declare with 'automatic' set before rms_breakpoint".to_owned()))?;
        if breakpoint.is_leaving() {
            return Err(Failure::NotNow("call rms_release_done when the nodes are left, and then go on".to_owned()));
        }
        let Some(change) = breakpoint.next() else {
            return match self.shared.mailbox.ended() {
                Some(reason) => Err(Failure::Ended(reason)),
                None => Ok(None),
            };
        };
        let held = holding.nodes.iter().filter(|node| !node.is_departing && !node.is_coming);
        let held = held.map(|node| node.name.clone());
        let n_after = breakpoint.n_after(&change, held);
        Ok(Some(Told {
            id: change.id,
            direction: change.direction,
            nodes: change.nodes,
            is_done: change.is_done,
            generation: holding.generation,
            n_after: u32::try_from(n_after).unwrap_or(u32::MAX),
        }))
    }

    /// Confirms that the application has left the nodes that it was told to leave.
    pub fn release_done(&self) -> Result<(), Failure> {
        let release = self.shared.state().breakpoint.as_mut().map_or(Release::Nothing, Breakpoint::release);
        let (id, released) = match release {
            Release::Nothing => {
                return Err(Failure::NotNow("rms_breakpoint has not told to leave any nodes".to_owned()));
            }
            Release::Void => return Ok(()),
            Release::Say(id, nodes) => (Some(id), self.release(Some(id), nodes)),
            Release::Free(nodes) => (None, self.release(None, nodes)),
        };
        match released {
            // The negotiation has expired or failed meanwhile, which the next breakpoint reports.
            Ok(()) | Err(Failure::NotNow(_) | Failure::UnknownNegotiation(_)) => Ok(()),
            // The stage has begun meanwhile, or another was announced instead: the next breakpoint reports that, too.
            Err(Failure::Refused(_)) if id.is_none() => Ok(()),
            Err(failure) => {
                if let Some(breakpoint) = self.shared.state().breakpoint.as_mut() {
                    breakpoint.unsaid(id);
                }
                Err(failure)
            }
        }
    }

    pub fn has_callback(&self) -> bool {
        self.callback().is_some()
    }

    /// Calls `call` for every event from now on.
    pub fn set_callback(&self, mut call: impl FnMut(&Event, Time) + Send + 'static) -> Result<(), Failure> {
        let mut slot = self.callback();
        if slot.is_some() {
            return Err(Failure::Busy(
                "there is a callback already; take it away with rms_on_event(session, NULL, NULL)",
            ));
        }
        let negotiator = self.negotiator.clone();
        let tell = move |event: &Event| {
            if is_current(&negotiator, event) {
                call(event, negotiator.now());
            }
        };
        *slot = Some(Callback::start(Arc::clone(&self.shared.mailbox), tell)?);
        Ok(())
    }

    /// Removes the callback, and waits until it no longer runs.
    pub fn take_callback(&self) -> Result<(), Failure> {
        self.check_that_it_can_close()?;
        let callback = self.callback().take();
        if let Some(callback) = callback {
            callback.stop(&self.shared.mailbox);
        }
        Ok(())
    }

    /// Fails in the callback's own thread, as a callback cannot wait for its own end.
    pub fn check_that_it_can_close(&self) -> Result<(), Failure> {
        match self.callback().as_ref() {
            Some(callback) if callback.is_this_thread() => {
                Err(Failure::Busy("a callback cannot end itself: do that in another thread"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the session's threads. The connection ends with the last caller that still uses it.
    pub fn close(&self) {
        self.shared.mailbox.close();
        self.shared.closed.notify_one();
        let callback = self.callback().take();
        if let Some(callback) = callback {
            callback.stop(&self.shared.mailbox);
        }
        let pump = self.pump.lock().expect(POISONED).take();
        if let Some(pump) = pump {
            // It panics only on a bug of the library, which was reported on standard error.
            let _ = pump.join();
        }
    }

    fn callback(&self) -> MutexGuard<'_, Option<Callback>> {
        self.callback.lock().expect(POISONED)
    }

    /// Waits for an answer of the RMS or of the negotiator's own thread.
    fn wait<T>(&self, answer: impl Future<Output = Result<T, NegotiatorError>>) -> Result<T, Failure> {
        let limited = async { tokio::time::timeout(self.patience, answer).await };
        let answer = self.runtime.block_on(limited).map_err(|_| Failure::TimedOut(self.patience))?;
        Ok(answer?)
    }
}

impl Shared {
    async fn connect_and_pump(&self, environment: JobEnvironment, tell: &SyncSender<Connected>) {
        match Negotiator::connect_with(environment).await {
            Ok(negotiator) => {
                // The connecting caller waits for this; the channel has room for it.
                let _ = tell.send(Ok(negotiator.clone()));
                self.pump(&negotiator).await;
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    }

    /// Takes the negotiator's events until the session is closed or ends.
    async fn pump(&self, negotiator: &Negotiator) {
        loop {
            let event = tokio::select! {
                event = self.next(negotiator) => event,
                () = self.closed.notified() => return,
            };
            let Some(event) = event else {
                return self.mailbox.end("the job has ended, or it has another negotiator");
            };
            let last_word = event.is_last().then(|| told::telling(&event, negotiator.now()).text);
            self.state().hear(&event);
            self.mailbox.put(event);
            if let Some(last_word) = last_word {
                return self.mailbox.end(&last_word);
            }
        }
    }

    /// Returns the next event. An application that answers itself gets the latest state when it asks, so this waits
    /// until the mailbox is empty; with breakpoints it does not wait, as they need every event.
    async fn next(&self, negotiator: &Negotiator) -> Option<Event> {
        while self.state().breakpoint.is_none() && !self.mailbox.is_empty() {
            self.mailbox.room().await;
        }
        negotiator.next_event().await
    }

    fn keep_breakpoints(&self, is_wanted: bool, holding: &Holding) {
        self.state().keep_breakpoints(is_wanted, holding);
        self.mailbox.hurry();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(POISONED)
    }
}

impl State {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Offered(offer) | Event::Countered(offer) => {
                self.offers.insert(offer.negotiation, offer.template.clone());
            }
            Event::Accepted(_) | Event::Ready(_) | Event::Ended { .. } => {
                if let Some(id) = event.negotiation() {
                    self.offers.remove(&id);
                }
            }
            Event::Holding(_) | Event::NodesLost(_) | Event::StageEnds(_) | Event::Warned(_) => {}
            Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => {}
        }
        self.promised.hear(event);
        if let Some(breakpoint) = &mut self.breakpoint {
            breakpoint.hear(event);
        }
    }

    fn keep_breakpoints(&mut self, is_wanted: bool, holding: &Holding) {
        match (is_wanted, &self.breakpoint) {
            (true, None) => self.breakpoint = Some(self.promised.breakpoint(holding)),
            (false, Some(_)) => self.breakpoint = None,
            (true, Some(_)) | (false, None) => {}
        }
    }
}

fn is_current(negotiator: &Negotiator, event: &Event) -> bool {
    told::is_current(event, |id| negotiator.negotiation(id).phase())
}

fn runtime() -> Result<Runtime, Failure> {
    let built = Builder::new_current_thread().enable_time().build();
    built.map_err(|source| Failure::Io { what: "no event queue (epoll)".to_owned(), source })
}

const POISONED: &str = "nobody panics while holding it";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakpoint::tests::{agreed, ends, holding, in_stage, told};

    #[test]
    fn breakpoints_tell_what_was_heard_before_they_were_declared() {
        let mut state = State::default();
        state.hear(&agreed("c"));
        state.keep_breakpoints(true, &holding("a b c"));
        let mut breakpoint = state.breakpoint.expect("they are wanted");
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".to_owned(), false)));

        let mut state = State::default();
        let stage = in_stage(1, &[3, 2], "a b c");
        state.hear(&stage);
        state.hear(&ends(2, "c"));
        let Event::Holding(holding) = stage else { panic!("{stage:?}") };
        state.keep_breakpoints(true, &holding);
        let mut breakpoint = state.breakpoint.expect("they are wanted");
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".to_owned(), false)));
    }
}
