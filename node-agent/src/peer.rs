//! Links to the other agents of a job: PMI frames, and commands on other nodes.

mod access;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rms_api::desired::LaunchNode;
use rms_model::{Inherited, JobId, Run, Work};
use rms_wire::peer::{Exec, StepPart};
use rms_wire::{
    Accepted, Backoff, Channel, Endpoint, Expect, Link, LinkError, PeerExec, PeerOpen, PmiDown, PmiUp, StepUp,
};
use thiserror::Error;
use tokio::sync::{Mutex, mpsc};

use crate::driver::PeerTransport;
use crate::exec::{self, Command, FromCommand, MAX_PIECES, ToCommand};
use crate::order::ToSupervisor;
use crate::pmi::JobNode;
use crate::pmi::frames::{Down, HubFrame, Up};
use crate::share::{Share, Shares};
use crate::step_part::{self, Part};
use access::{AccessError, share_for};

/// Links to the agents of other nodes; clones share them.
#[derive(Clone, Debug)]
pub struct Peers(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    endpoint: Endpoint,
    shares: Shares,
    /// One link to each agent, for all jobs.
    links: Mutex<BTreeMap<String, Link>>,
}

/// Why another agent cannot be used.
#[derive(Debug, Error)]
pub enum PeerError {
    #[error("the address {address} of node {node} cannot be used")]
    Address { node: String, address: String },
    #[error("cannot reach the agent of node {node}")]
    Link { node: String, source: LinkError },
}

/// The capacity of the queues of frames between hub and nodes: a node has few in flight. If a queue is full, the link's
/// receiver waits.
const MAX_FRAMES: usize = 1024;

impl Peers {
    pub fn new(endpoint: Endpoint, shares: Shares) -> Peers {
        Peers(Arc::new(Parts { endpoint, shares, links: Mutex::new(BTreeMap::new()) }))
    }

    /// Serves the agents that connect here.
    pub async fn serve(self) {
        while let Some(accepted) = self.0.endpoint.accept().await {
            match accepted {
                Accepted::Link(link) => drop(tokio::spawn(self.clone().serve_link(link))),
                // Only servers redeem tokens; the endpoint rejects such connections.
                Accepted::Join(_) => {}
            }
        }
    }

    async fn serve_link(self, link: Link) {
        while let Ok(mut channel) = link.accept().await {
            let peers = self.clone();
            let name = link.identity().name.clone();
            tokio::spawn(async move {
                match channel.recv::<PeerOpen>().await {
                    Ok(Some(PeerOpen::Pmi { job, run })) => peers.serve_pmi(&name, job, run, channel).await,
                    Ok(Some(PeerOpen::Exec(order))) => peers.serve_exec(&name, order, channel).await,
                    Ok(Some(PeerOpen::Step(step))) => peers.serve_step(&name, *step, channel).await,
                    Ok(None) | Err(_) => {}
                }
            });
        }
    }

    async fn link(&self, place: &LaunchNode) -> Result<Link, PeerError> {
        let mut links = self.0.links.lock().await;
        if let Some(link) = links.get(&place.name).filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let address = place
            .address
            .parse()
            .map_err(|_| PeerError::Address { node: place.name.clone(), address: place.address.clone() })?;
        let link = self.0.endpoint.connect(address, Expect::agent(&place.name)).await;
        let link = link.map_err(|source| PeerError::Link { node: place.name.clone(), source })?;
        links.insert(place.name.clone(), link.clone());
        Ok(link)
    }

    async fn channel(&self, place: &LaunchNode, open: &PeerOpen) -> Result<Channel, PeerError> {
        let link = self.link(place).await?;
        let opened = async {
            let mut channel = link.open().await?;
            channel.send(open).await?;
            Ok(channel)
        };
        opened.await.map_err(|source| PeerError::Link { node: place.name.clone(), source })
    }

    /// Runs a command on another node of a job.
    ///
    /// # Errors
    /// The agent of the node cannot be reached.
    pub async fn exec(
        &self,
        share: &Share,
        place: &LaunchNode,
        command: String,
        inherited: Option<Inherited>,
    ) -> Result<Command, PeerError> {
        let open = PeerOpen::Exec(Exec { job: share.job(), run: share.run(), command, inherited });
        let channel = self.channel(place, &open).await?;
        let (to, input) = mpsc::channel(MAX_PIECES);
        let (output, from) = mpsc::channel(MAX_PIECES);
        tokio::spawn(run_remote_command(channel, input, output));
        Ok(Command { to, from })
    }

    async fn serve_exec(&self, peer: &str, order: Exec, mut channel: Channel) {
        let command = match share_for(&self.0.shares, peer, order.job, order.run).await {
            Ok(share) => exec::start(&share, order.command, order.inherited, true),
            Err(refusal) => {
                let _peer_left = channel.send(&PeerExec::Failed { reason: refusal.to_string() }).await;
                channel.finish();
                return;
            }
        };
        serve_command(channel, command).await;
    }

    /// Starts a step's part on another node of a job.
    ///
    /// # Errors
    /// The agent of the node cannot be reached.
    pub async fn step(&self, place: &LaunchNode, step: StepPart) -> Result<Part, PeerError> {
        Ok(step_part::on_channel(self.channel(place, &PeerOpen::Step(Box::new(step))).await?))
    }

    async fn serve_step(&self, peer: &str, step: StepPart, mut channel: Channel) {
        match share_for(&self.0.shares, peer, step.job, step.run).await {
            Ok(share) => step_part::serve(channel, step_part::start(&share, step, true)).await,
            Err(refusal) => {
                let _peer_left = channel.send(&StepUp::Failed { reason: refusal.to_string() }).await;
                channel.finish();
            }
        }
    }

    /// Serves the PMI frames of another node, as the agent of the first node.
    async fn serve_pmi(&self, peer: &str, job: JobId, run: Run, mut channel: Channel) {
        let Ok(Some(PmiUp::Init { joined, n_local: _ })) = channel.recv().await else { return };
        let node = JobNode { node: peer.to_owned(), joined };
        let refused = match share_for(&self.0.shares, peer, job, run).await {
            Ok(share) if share.has_ended() => Err(PmiDown::Say(Down::Over)),
            Ok(share) => Ok(share),
            // A node that waits for a job which is no longer here has missed its end.
            Err(AccessError::NotHere { .. }) => Err(PmiDown::Say(Down::Over)),
            Err(refusal @ AccessError::NotMember { .. }) => Err(PmiDown::Refused { reason: refusal.to_string() }),
        };
        let share = match refused {
            Ok(share) => share,
            Err(refused) => {
                let _peer_left = channel.send(&refused).await;
                channel.finish();
                return;
            }
        };
        let (downs, mut queue) = mpsc::channel(MAX_FRAMES);
        share.node_linked(node.clone(), downs);
        let (mut sender, mut receiver) = channel.split();
        let writer = tokio::spawn(async move {
            while let Some(down) = queue.recv().await {
                if sender.send(&PmiDown::Say(down)).await.is_err() {
                    return;
                }
            }
            sender.finish();
        });
        while let Ok(Some(up)) = receiver.recv::<PmiUp>().await {
            if let PmiUp::Say(up) = up {
                share.send(&ToSupervisor::Pmi { node: node.clone(), frame: HubFrame::Up(up) });
            }
        }
        writer.abort();
    }

    /// Keeps a channel to the hub open for as long as the share has a supervisor.
    async fn maintain_hub_channel(self, share: Share, mut ups: mpsc::Receiver<Up>) {
        let Some(hub) = share.order().launch.nodes.first().cloned() else { return };
        let (job, run, joined) = (share.job(), share.run(), share.order().joined());
        let n_local = share.order().place().map_or(0, |place| place.n_tasks);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        while share.to_supervisor().is_some() {
            let linked = async {
                let mut channel = self.channel(&hub, &PeerOpen::Pmi { job, run }).await?;
                let init = channel.send(&PmiUp::Init { joined, n_local }).await;
                init.map_err(|source| PeerError::Link { node: hub.name.clone(), source })?;
                Ok::<Channel, PeerError>(channel)
            };
            match linked.await {
                Ok(channel) => {
                    // Everything unanswered is sent again on the new channel, so queued frames are dropped.
                    while ups.try_recv().is_ok() {}
                    share.send(&ToSupervisor::PmiLinked);
                    if forward_pmi(&share, &hub, channel, &mut ups).await == ChannelEnd::Done {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%job, error = %anyhow::Error::from(error), "cannot reach the first node of a job; trying again")
                }
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelEnd {
    /// The supervisor sends no more.
    Done,
    Lost,
}

async fn forward_pmi(share: &Share, hub: &LaunchNode, channel: Channel, ups: &mut mpsc::Receiver<Up>) -> ChannelEnd {
    let (mut sender, mut receiver) = channel.split();
    let to_share = share.clone();
    let node = JobNode { node: hub.name.clone(), joined: hub.joined };
    let mut reader = tokio::spawn(async move {
        while let Ok(Some(down)) = receiver.recv::<PmiDown>().await {
            match down {
                PmiDown::Say(down) => {
                    to_share.send(&ToSupervisor::Pmi { node: node.clone(), frame: HubFrame::Down(down) })
                }
                PmiDown::Refused { reason } => {
                    tracing::warn!(job = %to_share.job(), reason, "the first node of a job refuses our ranks");
                    return;
                }
            }
        }
    });
    loop {
        tokio::select! {
            up = ups.recv() => {
                let Some(up) = up else {
                    reader.abort();
                    return ChannelEnd::Done;
                };
                if sender.send(&PmiUp::Say(up)).await.is_err() {
                    reader.abort();
                    return ChannelEnd::Lost;
                }
            }
            _ended = &mut reader => return ChannelEnd::Lost,
        }
    }
}

impl Peers {
    fn hub_sender(&self, share: &Share) -> mpsc::Sender<Up> {
        share.hub(|| {
            let (sender, ups) = mpsc::channel(MAX_FRAMES);
            tokio::spawn(self.clone().maintain_hub_channel(share.clone(), ups));
            sender
        })
    }
}

impl PeerTransport for Peers {
    fn resume(&self, share: &Share) {
        let order = share.order();
        let has_own_tasks = order.place().is_some_and(|place| place.n_tasks > 0);
        let may_have_ranks =
            matches!(order.launch.execution.work, Work::Tasks { .. }) && (order.joined() == 1 || !has_own_tasks);
        if may_have_ranks && order.node_idx > 0 {
            self.hub_sender(share);
        }
    }

    fn send_frame(&self, share: &Share, node: &JobNode, frame: HubFrame) {
        match frame {
            HubFrame::Up(up) => {
                let sender = self.hub_sender(share);
                // Full or broken: the channel is opened again, and everything unanswered is repeated.
                let _repeated_later = sender.try_send(up);
            }
            HubFrame::Down(down) => {
                // A node without a channel asks again once it has one.
                let _asked_again = share.node(node).map(|sender| sender.try_send(down));
            }
        }
    }
}

/// Forwards messages between a command here and a peer that waits for it.
async fn serve_command(channel: Channel, command: Command) {
    let (mut sender, mut receiver) = channel.split();
    let Command { to, mut from } = command;
    let input = tokio::spawn(async move {
        loop {
            let piece = match receiver.recv::<PeerExec>().await {
                Ok(Some(PeerExec::Stdin { bytes })) if !bytes.is_empty() => ToCommand::Input(bytes),
                Ok(Some(PeerExec::StdinEof)) => ToCommand::InputEnds,
                Ok(Some(
                    PeerExec::Stdin { .. }
                    | PeerExec::Stdout { .. }
                    | PeerExec::Stderr { .. }
                    | PeerExec::Signal { .. }
                    | PeerExec::Exit { .. }
                    | PeerExec::Failed { .. },
                )) => continue,
                // The caller has left, so the command is abandoned.
                Ok(None) | Err(_) => return,
            };
            if to.send(piece).await.is_err() {
                return;
            }
        }
    });
    while let Some(heard) = from.recv().await {
        let frame = match heard {
            FromCommand::Output(bytes) => PeerExec::Stdout { bytes },
            FromCommand::Errors(bytes) => PeerExec::Stderr { bytes },
            FromCommand::Ended { code } => PeerExec::Exit { code: Some(code), signal: None },
            FromCommand::Failed { reason } => PeerExec::Failed { reason },
        };
        if sender.send(&frame).await.is_err() {
            break;
        }
    }
    sender.finish();
    sender.delivered().await;
    input.abort();
}

/// Forwards messages between a caller here and a command under another agent.
async fn run_remote_command(channel: Channel, mut input: mpsc::Receiver<ToCommand>, output: mpsc::Sender<FromCommand>) {
    let (mut sender, mut receiver) = channel.split();
    let writer = tokio::spawn(async move {
        while let Some(piece) = input.recv().await {
            let frame = match piece {
                ToCommand::Input(bytes) => PeerExec::Stdin { bytes },
                ToCommand::InputEnds => PeerExec::StdinEof,
            };
            if sender.send(&frame).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    loop {
        let heard = tokio::select! {
            frame = receiver.recv::<PeerExec>() => match frame {
                Ok(Some(PeerExec::Stdout { bytes })) => FromCommand::Output(bytes),
                Ok(Some(PeerExec::Stderr { bytes })) => FromCommand::Errors(bytes),
                Ok(Some(PeerExec::Exit { code, signal })) => {
                    FromCommand::Ended { code: code.or(signal.map(|signal| 128 + signal)).unwrap_or(255) }
                }
                Ok(Some(PeerExec::Failed { reason })) => FromCommand::Failed { reason },
                Ok(Some(PeerExec::Stdin { .. } | PeerExec::StdinEof | PeerExec::Signal { .. })) => continue,
                Ok(None) => FromCommand::Failed { reason: "the agent of the other node ended the command".to_owned() },
                Err(error) => FromCommand::Failed { reason: format!("lost the other node: {error}") },
            },
            () = output.closed() => break,
        };
        let is_last = matches!(heard, FromCommand::Ended { .. } | FromCommand::Failed { .. });
        if output.send(heard).await.is_err() || is_last {
            break;
        }
    }
    // The other agent abandons the command when this connection is closed.
    writer.abort();
}
