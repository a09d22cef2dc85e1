//! Handles an agent's requests for a job on its node: another size, or a certificate for its processes.

use std::sync::Arc;

use rms_api::negotiate::{Ask, AskOutcome};
use rms_api::{Answer, Refused};
use rms_core::server_loop::{AgentAsk, LinkId};
use rms_model::{JobId, Run};
use rms_wire::ToAgent;
use rms_wire::tls::draw_serial;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::join::{certify, stopping};
use crate::inbox::{Answered, Inbound, Stopping};
use crate::shared::Shared;

/// The most open requests of one agent, because each takes a task: further ones are refused, and the agent retries.
const MAX_OPEN: usize = 256;

/// The open requests of one link. They are dropped with it: the core decides whether their effects go on, but the
/// answers are not sent.
pub struct Asks {
    shared: Arc<Shared>,
    name: String,
    link: LinkId,
    answers: mpsc::Sender<ToAgent>,
    places: Arc<Semaphore>,
    open: JoinSet<()>,
}

impl Asks {
    pub fn new(shared: &Arc<Shared>, name: &str, link: LinkId, answers: mpsc::Sender<ToAgent>) -> Asks {
        let places = Arc::new(Semaphore::new(MAX_OPEN));
        Asks { shared: Arc::clone(shared), name: name.to_owned(), link, answers, places, open: JoinSet::new() }
    }

    /// Requests another size for a job: answered once the negotiation has ended, which may take long.
    pub async fn size(&mut self, seq: u64, job: JobId, run: Run, ask: Ask) {
        let refuse = move |refused| ToAgent::NotAsked { seq, refused };
        let answer = move |answered: Result<Answered, Stopping>, _: &Shared| match outcome(answered) {
            Ok(outcome) => ToAgent::Asked { seq, outcome },
            Err(refused) => refuse(refused),
        };
        self.begin(job, run, AgentAsk::Size(Box::new(ask)), answer, refuse).await;
    }

    /// Requests a certificate for the processes of a job.
    pub async fn certificate(&mut self, seq: u64, job: JobId, run: Run, csr: Vec<u8>) {
        let refuse = move |refused| ToAgent::NotCertified { seq, refused };
        if !self.shared.certifications.allows() {
            let busy = "too many certificates are being made: try again in a moment";
            return self.say(refuse(Refused::new("busy", busy))).await;
        }
        let answer = move |answered: Result<Answered, Stopping>, shared: &Shared| {
            let signed = answered.map_err(stopping).and_then(|answered| certify(answered, shared));
            match signed {
                Ok(signing) => ToAgent::Certified { seq, chain: signing.signed.chain, ca: signing.signed.ca },
                Err(refused) => refuse(refused),
            }
        };
        let what = AgentAsk::Certificate { csr, serial: draw_serial() };
        self.begin(job, run, what, answer, refuse).await;
    }

    /// Sends the request to the core, and answers from a task of its own: reports must not wait for it.
    async fn begin(
        &mut self,
        job: JobId,
        run: Run,
        what: AgentAsk,
        answer: impl FnOnce(Result<Answered, Stopping>, &Shared) -> ToAgent + Send + 'static,
        refuse: impl Fn(Refused) -> ToAgent,
    ) {
        // Removes the tasks that are done.
        while self.open.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let busy = format!("{MAX_OPEN} requests of this agent are open: try again in a moment");
            return self.say(refuse(Refused::new("busy", busy))).await;
        };
        let (reply, answered) = oneshot::channel();
        let (name, link) = (self.name.clone(), self.link);
        if let Err(error) = self.shared.inbox.put(Inbound::AgentAsked { name, link, job, run, what, reply }).await {
            return self.say(refuse(stopping(error))).await;
        }
        let (shared, answers) = (Arc::clone(&self.shared), self.answers.clone());
        self.open.spawn(async move {
            let answered = answered.await.map_err(|_| Stopping);
            // The link may have ended meanwhile.
            let _ = answers.send(answer(answered, &shared)).await;
            drop(place);
        });
    }

    async fn say(&self, answer: ToAgent) {
        // The write half may have seen the end of the link first.
        let _ = self.answers.send(answer).await;
    }
}

fn outcome(answered: Result<Answered, Stopping>) -> Result<AskOutcome, Refused> {
    match answered {
        Ok(Answered::Done(Answer::Negotiated(outcome))) => Ok(outcome),
        Ok(Answered::Refused(refusal)) => Err(Refused::from(&refusal)),
        Ok(Answered::Failing(error)) => Err(error.refused()),
        Ok(Answered::Done(_) | Answered::Sign(_)) => Err(Refused::new("internal", "this was not asked for")),
        Err(error) => Err(stopping(error)),
    }
}
