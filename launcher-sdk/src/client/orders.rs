//! Calls that change something. None is repeated after a broken link, because the server may have carried it out.

use negotiation::NegotiationId;
use rms_api::Answer;
use rms_api::call::update::Changes;
use rms_api::call::{Call, CertificateSelect, JobsOfRevoked, Select, Submission, TokenOrder};
use rms_api::masks::{MaskOrder, NodeMasks};
use rms_api::negotiate::{Ask, AskOutcome, Order};
use rms_model::{Evolution, JobId, Time};
use rms_wire::ClientRequest;

use super::{Client, JobsDone, Submitted};
use crate::error::CallError;

impl Client {
    /// Submits a job. When this returns, the job is durable.
    ///
    /// # Errors
    /// See [`CallError`]; a refusal says what would be possible.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, CallError> {
        let reply = self.order(Call::Submit(Box::new(submission))).await?;
        if let Answer::Submitted { job } = reply {
            return Ok(Submitted::Job(job));
        }
        let Answer::WouldStart { request, at, reason, sizes, now, lent_by } = reply else {
            return Err(CallError::Unexpected);
        };
        Ok(Submitted::WouldStart { request, at, reason: reason.map(Box::new), sizes, now, lent_by })
    }

    /// Cancels jobs: waiting ones leave the queue; running ones get SIGTERM, and SIGKILL after the grace time.
    ///
    /// # Errors
    /// See [`CallError`]; refusals of single jobs are in the result.
    pub async fn cancel(&self, select: Select) -> Result<JobsDone, CallError> {
        self.order_jobs(Call::Cancel { select }).await
    }

    /// Sends a signal, by its number on Linux, to every task of running jobs.
    ///
    /// # Errors
    /// See [`Client::cancel`].
    pub async fn signal(&self, select: Select, signal: i32) -> Result<JobsDone, CallError> {
        self.order_jobs(Call::Signal { select, signal }).await
    }

    /// Keeps waiting jobs from starting until they are released.
    ///
    /// # Errors
    /// See [`Client::cancel`].
    pub async fn hold(&self, select: Select) -> Result<JobsDone, CallError> {
        self.order_jobs(Call::Hold { select }).await
    }

    /// Lets held jobs start.
    ///
    /// # Errors
    /// See [`Client::cancel`].
    pub async fn release(&self, select: Select) -> Result<JobsDone, CallError> {
        self.order_jobs(Call::Release { select }).await
    }

    /// Changes attributes of jobs; for each job, either all changes are made or none.
    ///
    /// # Errors
    /// See [`Client::cancel`].
    pub async fn update(&self, select: Select, changes: Changes) -> Result<JobsDone, CallError> {
        self.order_jobs(Call::Update { select, changes: Box::new(changes) }).await
    }

    /// Sets the priority of waiting jobs: the higher, the sooner. Only an admin may go above 0.
    ///
    /// # Errors
    /// See [`Client::cancel`].
    pub async fn set_priority(&self, select: Select, priority: i32) -> Result<JobsDone, CallError> {
        self.order_jobs(Call::set_priority(select, priority)).await
    }

    /// Replaces the announced stages of an evolving job (000, 003). For a waiting job, `stages` are all of its stages;
    /// for a running job, those from now on, of which the first is what the job holds. With `open`, more stages may be
    /// announced before these are over.
    ///
    /// # Errors
    /// If the stages do not fit within the job's expand limit, the refusal says when they would; the stages announced before
    /// stay.
    pub async fn evolve(&self, job: JobId, stages: Evolution, open: bool) -> Result<(), CallError> {
        self.change(Call::Evolve { job, stages, open }).await
    }

    /// Chooses, by name, the nodes that an evolving job frees at its next smaller stage (003, Alg. 1: the application
    /// chooses).
    ///
    /// # Errors
    /// Some nodes are not the job's, its first node is among them, or there are more than the next stage gives up.
    pub async fn free_nodes(&self, job: JobId, nodes: Vec<String>) -> Result<(), CallError> {
        self.change(Call::FreeNodes { job, nodes }).await
    }

    /// Requests a change of a running job on behalf of its application (002), and waits until it is ready or has failed.
    ///
    /// # Errors
    /// See [`CallError`]. After [`CallError::Interrupted`] the negotiation may go on: see [`Client::negotiations`].
    pub async fn negotiate(&self, job: JobId, ask: Ask) -> Result<AskOutcome, CallError> {
        let Answer::Negotiated(outcome) = self.order(Call::Negotiate { job, ask }).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(outcome)
    }

    /// Reports that a job has adapted to this generation of its nodes, and has left the nodes that it was asked to leave.
    ///
    /// # Errors
    /// See [`CallError`]; also fails if the job does not run, or its nodes never change.
    pub async fn resize_done(&self, job: JobId, generation: u32) -> Result<(), CallError> {
        self.change(Call::ResizeDone { job, generation }).await
    }

    /// Ends a negotiation without a result, or takes at once the nodes that it is about.
    ///
    /// # Errors
    /// See [`CallError`]; also fails if the negotiation is over or cannot be forced.
    pub async fn order_negotiation(
        &self,
        job: JobId,
        negotiation: NegotiationId,
        order: Order,
    ) -> Result<(), CallError> {
        self.change(Call::OrderNegotiation { job, negotiation, order }).await
    }

    /// Sets the CPUs on which one process of a running job may run, as DROM does (004, §3.3), and returns the job's masks on
    /// that node after the change. CPUs have the kernel's numbers.
    ///
    /// # Errors
    /// See [`CallError`]. Also fails if the job belongs to another user or does not run, if the process or the CPUs are
    /// not the job's on that node, or if the node does not answer.
    pub async fn set_mask(&self, job: JobId, order: MaskOrder) -> Result<(Time, Vec<NodeMasks>), CallError> {
        let Answer::Masks { now, nodes } = self.order(Call::SetMask { job, order }).await? else {
            return Err(CallError::Unexpected);
        };
        Ok((now, nodes))
    }

    /// Changes a setting of the server, as `rms admin set` does.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this. Also fails if there is no such setting, or it cannot have this value.
    pub async fn set(&self, key: &str, value: &str) -> Result<(), CallError> {
        self.change(Call::Set { key: key.to_owned(), value: value.to_owned() }).await
    }

    /// Drains nodes by name: nothing new starts on them.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this. Also fails if a node does not exist; nothing was changed then.
    pub async fn drain(&self, nodes: Vec<String>, reason: String) -> Result<(), CallError> {
        self.change(Call::Drain { nodes, reason }).await
    }

    /// Sets nodes down by name: jobs on them are ended.
    ///
    /// # Errors
    /// See [`Client::drain`].
    pub async fn set_down(&self, nodes: Vec<String>, reason: String) -> Result<(), CallError> {
        self.change(Call::Down { nodes, reason }).await
    }

    /// Lets jobs start again on nodes that an admin has drained or set down.
    ///
    /// # Errors
    /// See [`Client::drain`]; also fails if a node has drained itself.
    pub async fn resume(&self, nodes: Vec<String>) -> Result<(), CallError> {
        self.change(Call::Resume { nodes }).await
    }

    /// Removes nodes that are lost or will not return.
    ///
    /// # Errors
    /// See [`Client::drain`]; also fails while one of the nodes holds jobs.
    pub async fn remove_nodes(&self, nodes: Vec<String>) -> Result<(), CallError> {
        self.change(Call::Remove { nodes }).await
    }

    /// Removes a cluster by name.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this. Also fails if the cluster does not exist or has nodes.
    pub async fn remove_cluster(&self, name: String) -> Result<(), CallError> {
        self.change(Call::RemoveCluster { name }).await
    }

    /// Describes the connection of two clusters, by name, in both directions (001: ICINFO): its latency in microseconds,
    /// and its bandwidth in Mbit/s, 0 if unknown.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this. Also fails if one of the clusters does not exist.
    pub async fn set_link(&self, [a, b]: [String; 2], latency_us: u32, bandwidth_mbit: u32) -> Result<(), CallError> {
        self.change(Call::SetLink { a, b, latency_us, bandwidth_mbit }).await
    }

    /// Makes a token valid that [`Client::draw_token`] has created.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this.
    pub async fn create_token(&self, token: TokenOrder) -> Result<(), CallError> {
        self.change(Call::CreateToken(token)).await
    }

    /// Revokes a join token by its id.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this. Also fails if the server does not know the token.
    pub async fn revoke_token(&self, id: String) -> Result<(), CallError> {
        self.change(Call::RevokeToken { id }).await
    }

    /// Revokes a certificate, or all of an identity, and closes the connections that use them. `jobs` says what to do with the
    /// jobs of users who lose access by this.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this. Also fails if there are such jobs and `jobs` is absent, or if no
    /// administrator would be left. [`CallError::Interrupted`] if the caller's own certificate is among them.
    pub async fn revoke_certificate(
        &self,
        which: CertificateSelect,
        jobs: Option<JobsOfRevoked>,
    ) -> Result<(), CallError> {
        self.change(Call::RevokeCertificate { which, jobs }).await
    }

    /// Sends a call that is answered job by job.
    async fn order_jobs(&self, call: Call) -> Result<JobsDone, CallError> {
        let Answer::Jobs { done, refused } = self.order(call).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(JobsDone { done, refused })
    }

    /// Sends a call whose only answer is that it was carried out, durably.
    async fn change(&self, call: Call) -> Result<(), CallError> {
        let Answer::Done = self.order(call).await? else { return Err(CallError::Unexpected) };
        Ok(())
    }

    /// Sends a call that is not a query.
    pub(super) async fn order(&self, call: Call) -> Result<Answer, CallError> {
        self.tell(&ClientRequest::Call(call)).await
    }
}
