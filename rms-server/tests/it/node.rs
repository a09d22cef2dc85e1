//! A node that applies the desired state at once and without any process: it reports starts and ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rms_api::desired::AgentHello;
use rms_api::desired::{Aim, Desired, JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::{Generation, Inventory, JobId, Run, Time, Usage};
use rms_wire::link::{Receiver, Sender};
use rms_wire::parts::{DesiredParts, report_parts};
use rms_wire::tls::Credentials;
use rms_wire::{Endpoint, Expect, NewKey, ToAgent, ToServer};
use tokio::sync::{mpsc, oneshot, watch};

/// The node's task; it ends with this handle.
pub struct Node {
    questions: mpsc::Sender<Question>,
    pub desired: watch::Receiver<Desired>,
}

type Question = (ToServer, oneshot::Sender<ToAgent>);

impl Node {
    /// Connects to the server and works for it.
    pub async fn start(credentials: &Credentials, address: SocketAddr) -> Node {
        Node::begin(credentials, address, BTreeMap::new()).await
    }

    /// As [`Node::start`], for a node on which a job runs.
    pub async fn with_job(credentials: &Credentials, address: SocketAddr, (job, run): (JobId, Run)) -> Node {
        Node::begin(credentials, address, [((job, run), 0)].into()).await
    }

    async fn begin(credentials: &Credentials, address: SocketAddr, has: BTreeMap<(JobId, Run), u32>) -> Node {
        let endpoint = Endpoint::dial(credentials).expect("a socket");
        let link = endpoint.connect(address, Expect::server()).await.expect("a welcome");
        let (mut sender, receiver) = link.open().await.expect("a channel").split();
        let inventory = Inventory { cores: 4, cpus: 4, ..Inventory::default() };
        let (cluster, address) = ("a".to_owned(), "127.0.0.1:1".to_owned());
        let hello = AgentHello { cluster, address, inventory, trouble: None };
        sender.send(&ToServer::Hello(hello)).await.expect("a link");
        let running = |(job, run): &(JobId, Run)| JobReport {
            job: *job,
            run: *run,
            status: JobStatus::running(Time::from_secs(1)),
        };
        let jobs = has.keys().map(running).collect();
        for part in report_parts(&NodeReport { seen: Generation(0), jobs }) {
            sender.send(&part).await.expect("a link");
        }
        let (questions, asked) = mpsc::channel(16);
        let (desires, mut desired) = watch::channel(Desired::default());
        let work = Work { sender, receiver, parts: DesiredParts::new(), has, open: None, desires };
        tokio::spawn(async move {
            // Held while the node works.
            let _alive = (endpoint, link);
            work.run(asked).await;
        });
        desired.changed().await.expect("the first desired state");
        Node { questions, desired }
    }

    /// Requests a certificate for the processes of a job; returns it, or the kind of the refusal.
    pub async fn certify(&self, job: JobId, run: Run) -> Result<Credentials, String> {
        let key = NewKey::generate().expect("a key");
        let csr = key.csr_der().to_vec();
        match self.ask(ToServer::Certify { seq: 7, job, run, csr }).await {
            ToAgent::Certified { seq: 7, chain, ca } => Ok(key.into_credentials(&chain, &ca).expect("a certificate")),
            ToAgent::NotCertified { seq: 7, refused } => Err(refused.kind),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a message whose answer is not awaited.
    pub async fn say(&self, said: ToServer) {
        let (reply, _unanswered) = oneshot::channel();
        self.questions.send((said, reply)).await.expect("the node works");
    }

    pub async fn ask(&self, question: ToServer) -> ToAgent {
        let (reply, answer) = oneshot::channel();
        self.questions.send((question, reply)).await.expect("the node works");
        answer.await.expect("the server answers")
    }

    pub fn has(&self, job: JobId) -> bool {
        self.desired.borrow().jobs.iter().any(|desired| desired.job == job && desired.aim == Aim::Run)
    }
}

struct Work {
    sender: Sender,
    receiver: Receiver,
    parts: DesiredParts,
    /// The jobs that were reported running, with the generations under which they came.
    has: BTreeMap<(JobId, Run), u32>,
    open: Option<oneshot::Sender<ToAgent>>,
    desires: watch::Sender<Desired>,
}

impl Work {
    async fn run(mut self, mut asked: mpsc::Receiver<Question>) {
        loop {
            tokio::select! {
                told = self.receiver.recv::<ToAgent>() => match told {
                    Ok(Some(told)) => self.told(told).await,
                    // The server is gone; the test continues without this node.
                    Ok(None) | Err(_) => return,
                },
                question = asked.recv() => {
                    let Some((question, reply)) = question else { return };
                    self.open = Some(reply);
                    self.say(&question).await;
                }
            }
        }
    }

    async fn told(&mut self, told: ToAgent) {
        match told {
            ToAgent::Desire(part) => {
                if let Some(desired) = self.parts.push(part).expect("a desired state") {
                    self.perform(&desired).await;
                    self.desires.send_replace(desired);
                }
            }
            ToAgent::Signal { .. } | ToAgent::Renewed { .. } | ToAgent::NotRenewed(_) | ToAgent::Revoked { .. } => {}
            answer @ (ToAgent::Asked { .. }
            | ToAgent::NotAsked { .. }
            | ToAgent::Certified { .. }
            | ToAgent::NotCertified { .. }) => {
                if let Some(open) = self.open.take() {
                    // The caller may have left.
                    let _ = open.send(answer);
                }
            }
        }
    }

    async fn perform(&mut self, desired: &Desired) {
        let mut jobs = Vec::new();
        for desired in &desired.jobs {
            let id = (desired.job, desired.run);
            let is_new = self.has.get(&id) != Some(&desired.joined());
            let status = match desired.aim {
                Aim::Run if is_new => {
                    self.has.insert(id, desired.joined());
                    JobStatus::running(Time::from_secs(1))
                }
                Aim::End { .. } if self.has.remove(&id).is_some() => {
                    JobStatus::Ended { at: Time::from_secs(2), exit: NodeExit::Ordered, usage: Usage::default() }
                }
                Aim::Run | Aim::End { .. } => continue,
            };
            jobs.push(JobReport { job: desired.job, run: desired.run, status });
        }
        if !jobs.is_empty() {
            for part in report_parts(&NodeReport { seen: desired.generation, jobs }) {
                self.say(&part).await;
            }
        }
    }

    async fn say(&mut self, message: &ToServer) {
        // A failed link is noticed when receiving.
        let _ = self.sender.send(message).await;
    }
}
