//! Frames of every kind and variant, for golden bytes and for mutation.

use rms_api::answer::{ServerReport, ViewAnswer};
use rms_api::call::HistoryQuery;
use rms_api::desired::Desired;
use rms_api::filter::{RecordColumn, Way};
use rms_api::masks::ThreadMask;
use rms_api::negotiate::NegotiatorNotice;
use rms_api::{Answer, Refused};
use rms_model::{Indices, JobId, Run, Span, Time};
use rms_wire::codec::{DecodeError, decode_frame, encode};
use rms_wire::hello::Proof;
use rms_wire::parts::{
    AnswerParts, DesiredParts, ReportParts, ViewParts, answer_parts, desire_parts, notice_parts, report_parts,
};
use rms_wire::peer::{Exec, StepPart};
use rms_wire::pmi::{Command, Down, HubAnswer, NamedNode, Pair, Part, Placement, Question, RankId, Up, WorldId};
use rms_wire::{
    AnswerPart, Chunk, ClientRequest, Follow, FollowOrder, Followed, Hello, HelloAnswer, Input, JoinAnswer,
    JoinRequest, Kind, LauncherSays, LauncherTold, MasksAsked, MasksSeen, Message, Missing, NegotiatorSays,
    NegotiatorTold, Offset, PeerExec, PeerOpen, PmiDown, PmiUp, Spooled, StepDown, StepUp, Stream, ToAgent, ToServer,
    Watch,
};

use super::{domain, later, launching, negotiating};

/// One frame, with the operations on its bytes.
pub struct Sample {
    pub kind: Kind,
    pub name: String,
    pub frame: Vec<u8>,
    /// Decodes a frame of this kind, parses its meaning, and encodes it again.
    pub again: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
}

fn sample<M: Message>(name: &str, message: &M, again: fn(&[u8]) -> Result<Vec<u8>, DecodeError>) -> Sample {
    Sample { kind: M::KIND, name: name.to_owned(), frame: encode(message).expect("within the limit"), again }
}

/// Returns samples of a kind that needs no further parsing.
fn plain<M: Message>(named: impl IntoIterator<Item = (&'static str, M)>) -> Vec<Sample> {
    named
        .into_iter()
        .map(|(name, message)| sample(name, &message, |frame| Ok(again(&decode_frame::<M>(frame)?))))
        .collect()
}

fn again<M: Message>(message: &M) -> Vec<u8> {
    encode(message).expect("what was decoded within the limit is encoded within it")
}

/// Like [`plain`], numbered in their order.
fn plain_numbered<M: Message>(name: &str, messages: impl IntoIterator<Item = M>) -> Vec<Sample> {
    parsed(name, messages, |frame| Ok(again(&decode_frame::<M>(frame)?)))
}

/// Returns samples of a kind whose parts are joined, numbered in their order.
fn parsed<M: Message>(
    name: &str,
    messages: impl IntoIterator<Item = M>,
    again: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
) -> Vec<Sample> {
    let numbered = messages.into_iter().enumerate();
    numbered.map(|(idx, message)| sample(&format!("{name}_{idx:02}"), &message, again)).collect()
}

pub fn samples() -> Vec<Sample> {
    let mut samples = greetings();
    samples.extend(of_agents());
    samples.extend(of_clients());
    samples.extend(of_streams());
    samples.extend(of_peers());
    samples.extend(of_launchers());
    samples.extend(of_negotiators());
    samples
}

fn greetings() -> Vec<Sample> {
    let text = str::to_owned;
    let request = JoinRequest {
        token_id: text("abcd"),
        secret: vec![1; 16],
        name: Some(text("n1")),
        machine: None,
        is_agent: None,
        csr: vec![0x30, 0x82],
        replaces: Some(text("5e")),
    };
    let granted = JoinAnswer::Granted { chain: text("chain"), ca: text("ca"), cluster: Some(text("a")) };
    let refused = JoinAnswer::Refused(Refused::new("token_invalid", "no"));
    let proof = Proof { chain: vec![vec![1, 2].into()], signature: vec![3; 64].into() };
    let mut samples = plain([
        ("hello", Hello { software: text("limber 0.1.0"), proof: None }),
        ("hello_here", Hello { software: text("limber 0.1.0"), proof: Some(proof) }),
    ]);
    samples.extend(plain([
        ("welcome", HelloAnswer::Welcome { software: text("limber 0.1.0"), authorities: vec![text("5e"), text("5f")] }),
        ("denied", HelloAnswer::Denied { reason: text("no") }),
    ]));
    samples.extend(plain([("join_request", request)]));
    samples.extend(plain([("granted", granted), ("refused", refused)]));
    samples
}

fn of_agents() -> Vec<Sample> {
    let mut to_server = vec![ToServer::Hello(domain::hello())];
    to_server.extend(report_parts(&domain::report()));
    to_server.push(ToServer::Renew { csr: vec![0x30, 0x82] });
    let asks = (1..).zip(negotiating::asks());
    to_server.extend(asks.map(|(seq, ask)| ToServer::Ask { seq, job: JobId(5), run: Run(2), ask }));
    to_server.push(ToServer::Certify { seq: 9, job: JobId(5), run: Run(2), csr: vec![0x30, 0x82] });
    to_server.push(ToServer::Trouble { reason: None });
    to_server.push(ToServer::Trouble { reason: Some("its spool is full".to_owned()) });
    to_server.extend(report_parts(&domain::ends_by_the_node()));
    to_server.extend(report_parts(&later::report()));
    to_server.push(ToServer::Hello(later::hello()));
    to_server.push(ToServer::Hello(later::lax()));
    to_server.push(ToServer::Hello(later::roomy()));
    to_server.push(ToServer::Hello(later::troubled()));
    to_server.push(ToServer::Serves { kinds: vec![14] });
    to_server.push(ToServer::Hello(later::uneven()));
    let mut samples = parsed("to_server", to_server, |frame| {
        let message = decode_frame::<ToServer>(frame)?;
        match message.clone() {
            ToServer::Report(part) => drop(ReportParts::new().push(part)),
            ToServer::Hello(_)
            | ToServer::Ask { .. }
            | ToServer::Renew { .. }
            | ToServer::Certify { .. }
            | ToServer::Serves { .. }
            | ToServer::Trouble { .. } => {}
        }
        Ok(again(&message))
    });
    let mut to_agent = desire_parts(&domain::desired());
    to_agent.extend(desire_parts(&Desired::default()));
    to_agent.push(ToAgent::Signal { job: JobId(5), run: Run(2), signal: 10 });
    to_agent.push(ToAgent::Renewed { chain: "chain".to_owned(), ca: "ca".to_owned() });
    to_agent.push(ToAgent::NotRenewed(Refused::new("not_allowed", "no")));
    to_agent.push(ToAgent::Revoked { serials: vec!["5e".to_owned()], last: true });
    let outcomes = (1..).zip(negotiating::outcomes());
    to_agent.extend(outcomes.map(|(seq, outcome)| ToAgent::Asked { seq, outcome }));
    to_agent.push(ToAgent::NotAsked { seq: 3, refused: Refused::new("not_negotiable", "no") });
    to_agent.push(ToAgent::Certified { seq: 9, chain: "chain".to_owned(), ca: "ca".to_owned() });
    to_agent.push(ToAgent::NotCertified { seq: 10, refused: Refused::new("another_run", "no") });
    to_agent.extend(desire_parts(&later::desired()));
    to_agent.extend(desire_parts(&later::desired_of_guest()));
    to_agent.extend(desire_parts(&later::desired_of_sharer()));
    samples.extend(parsed("to_agent", to_agent, |frame| {
        let message = decode_frame::<ToAgent>(frame)?;
        if let ToAgent::Desire(part) = message.clone() {
            drop(DesiredParts::new().push(part));
        }
        Ok(again(&message))
    }));
    let asked = |order| MasksAsked { jobs: vec![later::masked_job()], most: 512, order };
    let [by_pid, by_task] = later::mask_orders();
    samples.extend(plain_numbered("masks_asked", [asked(None), asked(Some(by_pid)), asked(Some(by_task))]));
    let jobs = vec![(JobId(5), Run(2), later::seen_masks())];
    let refused = Some(Refused::new("no_such_process", "no"));
    let mut of_threads = later::seen_masks();
    of_threads.processes[0].of_threads = vec![
        ThreadMask { n_threads: 3, cpus: Indices::below(2) },
        ThreadMask { n_threads: 1, cpus: Indices::below(1) },
    ];
    let seen = [
        MasksSeen { jobs, refused: None },
        MasksSeen { jobs: Vec::new(), refused },
        MasksSeen { jobs: vec![(JobId(5), Run(2), of_threads)], refused: None },
    ];
    samples.extend(plain_numbered("masks_seen", seen));
    samples
}

fn of_clients() -> Vec<Sample> {
    let mut calls: Vec<ClientRequest> = domain::calls().into_iter().map(ClientRequest::Call).collect();
    let history = HistoryQuery {
        users: vec!["alice".to_owned()],
        states: vec!["failed".to_owned()],
        since: Some(Time::from_secs(1)),
        until: Some(Time::from_secs(2)),
        jobs: vec![JobId(1)],
        names: vec!["nbody".to_owned()],
        clusters: vec!["a".to_owned()],
        sort: vec![(RecordColumn::Cpu, Way::Down), (RecordColumn::Job, Way::Up)],
        limit: 100,
        offset: 200,
        accounts: Vec::new(),
    };
    let offset = Offset { node_idx: 1, task: 2, stream: Stream::Err, offset: 4096 };
    let follow = Follow { job: JobId(5), run: Some(Run(2)), from: vec![offset], input: true, input_from: None };
    calls.push(ClientRequest::History(history));
    calls.push(ClientRequest::Follow(follow));
    calls.push(ClientRequest::Watch(Watch { jobs: vec![JobId(5), JobId(6)] }));
    calls.push(ClientRequest::Launcher);
    calls.push(ClientRequest::Launchers);
    calls.push(ClientRequest::Server);
    calls.push(ClientRequest::Negotiator);
    calls.extend(later::calls());
    let mut samples = plain_numbered("call", calls);
    let mut answers = domain::answers();
    answers.extend([
        Answer::History((0..8).map(domain::record).collect()),
        Answer::Queue { now: Time::EPOCH, planned: Time::EPOCH, jobs: Vec::new() },
        Answer::Detail { now: Time::EPOCH, planned: Time::EPOCH, jobs: Vec::new() },
        Answer::View(ViewAnswer { now: Time::EPOCH, job: None, clusters: Vec::new() }),
        Answer::Certificate { chain: "chain".to_owned(), ca: "ca".to_owned() },
        Answer::Launchers(Box::new(launching::launcher_report())),
        Answer::Server(ServerReport {
            version: "0.1.0".to_owned(),
            since: Time::from_millis(1),
            journal_bytes: 2,
            snapshot: Some(Time::from_millis(3)),
            snapshot_bytes: 4,
            history_failure: Some("the disk is full".to_owned()),
        }),
        Answer::Negotiated(negotiating::short()),
    ]);
    let mut parts: Vec<AnswerPart> =
        answers.iter().flat_map(|answer| answer_parts(answer).collect::<Vec<_>>()).collect();
    parts.push(AnswerPart::whole(Err(Refused::from(&rms_api::Refusal::NoNodes))));
    parts.extend(later::answers().iter().flat_map(|answer| answer_parts(answer).collect::<Vec<_>>()));
    samples.extend(parsed("answer", parts, |frame| {
        let message = decode_frame::<AnswerPart>(frame)?;
        if let AnswerPart { answer: Ok(answer), last } = message.clone() {
            drop(AnswerParts::new().push(answer, last));
        }
        Ok(again(&message))
    }));
    samples
}

fn of_streams() -> Vec<Sample> {
    let offset = |stream| Offset { node_idx: 1, task: 2, stream, offset: 1 << 33 };
    let from = vec![offset(Stream::Out), offset(Stream::Err)];
    let chunk = Chunk { node_idx: 1, task: 2, stream: Stream::Out, offset: 300, bytes: b"hello\n".to_vec() };
    let follow = FollowOrder {
        job: JobId(5),
        run: Run(2),
        from: from.clone(),
        is_over: false,
        submitted: None,
        input_from: None,
    };
    let mut samples = plain([("follow_order", follow.clone())]);
    samples.extend(plain([
        ("spooled_chunk", Spooled::Chunk(chunk.clone())),
        ("spooled_end", Spooled::End),
        ("spooled_failed", Spooled::Failed { reason: "no such job".to_owned() }),
        ("spooled_missing", Spooled::Missing { reason: "the disk was full".to_owned(), from: from.clone() }),
    ]));
    let reason = "the disk was full".to_owned();
    let missing = Missing { node: "a1".to_owned(), reason, from, is_unknown: false };
    let followed = [
        Followed::Chunk(chunk),
        Followed::Change(domain::change()),
        Followed::End,
        Followed::Refused(Refused::new("no_such_job", "no")),
        Followed::Missing(missing.clone()),
        Followed::Away { node: "a1".to_owned(), secs: 60 },
        Followed::Whole { node: "a2".to_owned() },
        Followed::Missing(Missing { is_unknown: true, ..missing }),
    ];
    samples.extend(plain_numbered("followed", followed.into_iter().chain(later::followed())));
    samples.extend(plain([("input", Input { bytes: b"yes\n".to_vec(), eof: true })]));
    let over = FollowOrder { is_over: true, ..follow };
    samples.extend(plain([("follow_order_over", over.clone())]));
    samples.extend(plain([("follow_order_of", FollowOrder { submitted: Some(Time::from_secs(7)), ..over.clone() })]));
    samples.extend(plain([("follow_order_from", FollowOrder { input_from: Some(70_000), ..over })]));
    samples.extend(plain([("spooled_taken", Spooled::Taken { n_bytes: 70_000 })]));
    samples.extend(plain_numbered("input_at", later::inputs()));
    samples
}

fn of_launchers() -> Vec<Sample> {
    let calls = launching::calls().into_iter().chain(launching::later_calls());
    let says = (1..).zip(calls).map(|(seq, call)| LauncherSays { seq, call });
    let mut samples = plain_numbered("says", says);
    let answers = (1..).zip(launching::answers());
    let mut told: Vec<LauncherTold> = answers.map(|(seq, answer)| LauncherTold::Answer { seq, answer }).collect();
    told.extend(launching::notices().iter().flat_map(notice_parts));
    let later = (100..).zip(launching::later_answers());
    told.extend(later.map(|(seq, answer)| LauncherTold::Answer { seq, answer }));
    told.extend(launching::later_notices().iter().flat_map(notice_parts));
    told.push(LauncherTold::Answer { seq: 200, answer: launching::told_the_time() });
    samples.extend(parsed("told", told, |frame| {
        let message = decode_frame::<LauncherTold>(frame)?;
        if let LauncherTold::Changed(part) = message.clone() {
            drop(ViewParts::new().push(part));
        }
        Ok(again(&message))
    }));
    samples
}

fn of_negotiators() -> Vec<Sample> {
    let says = (1..).zip(negotiating::calls()).map(|(seq, call)| NegotiatorSays { seq, call });
    let mut samples = plain_numbered("negotiator_says", says);
    let answers = (1..).zip(negotiating::answers());
    let mut told: Vec<NegotiatorTold> = answers.map(|(seq, answer)| NegotiatorTold::Answer { seq, answer }).collect();
    told.extend(negotiating::notices().into_iter().map(NegotiatorTold::Notice));
    told.push(NegotiatorTold::Answer { seq: 9, answer: negotiating::attached_in_stages() });
    told.push(NegotiatorTold::Notice(NegotiatorNotice::Holding(Box::new(negotiating::shared()))));
    told.push(NegotiatorTold::Notice(NegotiatorNotice::Holding(Box::new(negotiating::coming()))));
    told.push(NegotiatorTold::Notice(NegotiatorNotice::Holding(Box::new(negotiating::of_cores()))));
    told.extend(negotiating::explained().map(NegotiatorTold::Notice));
    samples.extend(plain_numbered("negotiator_told", told));
    samples
}

fn of_peers() -> Vec<Sample> {
    let text = str::to_owned;
    let exec = Exec { job: JobId(5), run: Run(2), command: text("hydra_pmi_proxy --x"), inherited: None };
    let pairs = || vec![Pair { key: text("P0-businesscard"), value: text("tcp://10.0.0.1:1234") }];
    let (service, port) = (|| text("ocean"), || text("tcp://x"));
    let rank = RankId { world: WorldId(1), rank: 3 };
    let ask = |id, question| Up::Ask { from: rank, id, question };
    let answer = |id, answer| Down::Answer { to: rank, id, answer };
    let argv = || vec![text("md"), text("-n 2")];
    let nodes = vec![NamedNode { node: text("n1"), slots: Some(2) }, NamedNode { node: text("n2"), slots: None }];
    let command = Command { argv: argv(), n_ranks: 2, nodes, wdir: Some(text("/tmp")), path: None };
    let part = Part { first_rank: 0, n_ranks: 2, appnum: 0, argv: argv(), wdir: None, path: Some(text("/opt/bin")) };
    let placement = Placement {
        world: WorldId(2),
        kvsname: text("kvs_5_2_2"),
        n_ranks: 4,
        universe: 8,
        first_task: 6,
        parts: vec![part],
        pairs: pairs(),
    };
    let step = StepPart {
        job: JobId(5),
        run: Run(2),
        step: 3,
        argv: argv(),
        set: vec![(text("OMP_NUM_THREADS"), text("4"))],
        unset: vec![text("LANG")],
        cwd: text("/tmp"),
        umask: 0o022,
        limits: None,
        first_task: 4,
        n_local: 2,
        n_tasks: 6,
        cpus_per_task: 1,
        n_readers: 0,
        nodes: text("n[1-3]"),
        n_nodes: 3,
        node_idx: 2,
        tasks_per_node: text("2(x3)"),
        kvsname: text("kvs_5_2_s3"),
        mapping: text("(vector,(0,3,2))"),
        universe: 12,
        grace: Span::from_secs(30),
    };
    let mut samples = plain([
        ("open_pmi", PeerOpen::Pmi { job: JobId(5), run: Run(2) }),
        ("open_exec", PeerOpen::Exec(exec)),
        ("open_step", PeerOpen::Step(Box::new(step))),
    ]);
    samples.extend(plain([
        ("step_stdin", StepDown::Stdin { bytes: vec![0, 255] }),
        ("step_stdin_eof", StepDown::StdinEof),
        ("step_signal", StepDown::Signal { signal: 10 }),
        ("step_end", StepDown::End),
        ("step_pmi_down", StepDown::Pmi(Down::Over)),
    ]));
    samples.extend(plain([
        ("step_stdout", StepUp::Stdout { task: 4, bytes: vec![1] }),
        ("step_stderr", StepUp::Stderr { task: 5, bytes: vec![2] }),
        ("step_taken", StepUp::Taken { n_bytes: 70_000 }),
        ("step_task_ended", StepUp::TaskEnded { task: 4, code: Some(3), signal: None }),
        ("step_aborted", StepUp::Aborted { code: 6 }),
        ("step_pmi_up", StepUp::Pmi(Up::Bye)),
        ("step_done", StepUp::Done),
        ("step_failed", StepUp::Failed { reason: text("the job is ending") }),
    ]));
    samples.extend(plain([
        ("up_init", PmiUp::Init { joined: 1, n_local: 24 }),
        ("up_hello", PmiUp::Say(Up::Hello)),
        ("up_fence", PmiUp::Say(Up::Fence { world: WorldId(0), seq: 3, pairs: pairs() })),
        ("up_abort", PmiUp::Say(Up::Abort { code: -1, message: text("no memory") })),
        ("up_publish", PmiUp::Say(ask(1, Question::Publish { service: service(), port: port() }))),
        ("up_unpublish", PmiUp::Say(ask(2, Question::Unpublish { service: service() }))),
        ("up_lookup", PmiUp::Say(ask(3, Question::Lookup { service: service() }))),
        ("up_spawn", PmiUp::Say(ask(4, Question::Spawn { commands: vec![command], pairs: pairs() }))),
        ("up_placed", PmiUp::Say(Up::Placed { world: WorldId(2), problem: Some(text("cannot execute 'md'")) })),
        ("up_remaining", PmiUp::Say(Up::Remaining { world: WorldId(2), n_ranks: 0 })),
        ("up_bye", PmiUp::Say(Up::Bye)),
    ]));
    samples.extend(plain([
        ("down_fence_done", PmiDown::Say(Down::FenceDone { world: WorldId(0), seq: 3, pairs: pairs() })),
        ("down_published", PmiDown::Say(answer(1, HubAnswer::Published { ok: true }))),
        ("down_unpublished", PmiDown::Say(answer(2, HubAnswer::Unpublished { ok: false }))),
        ("down_found", PmiDown::Say(answer(3, HubAnswer::Found { port: Some(port()) }))),
        ("down_spawned", PmiDown::Say(answer(4, HubAnswer::Spawned { n_ranks: 2 }))),
        ("down_not_spawned", PmiDown::Say(answer(5, HubAnswer::NotSpawned { reason: text("no room") }))),
        ("down_place", PmiDown::Say(Down::Place(placement))),
        ("down_cancel", PmiDown::Say(Down::Cancel { world: WorldId(2) })),
        ("down_noted", PmiDown::Say(Down::Noted { world: WorldId(2), n_ranks: 0 })),
        ("down_aborted", PmiDown::Say(Down::Aborted { code: 6 })),
        ("down_over", PmiDown::Say(Down::Over)),
        ("down_refused", PmiDown::Refused { reason: text("no such job") }),
    ]));
    samples.extend(plain([
        ("exec_stdin", PeerExec::Stdin { bytes: vec![0, 255] }),
        ("exec_stdin_eof", PeerExec::StdinEof),
        ("exec_stdout", PeerExec::Stdout { bytes: vec![1] }),
        ("exec_stderr", PeerExec::Stderr { bytes: vec![2] }),
        ("exec_signal", PeerExec::Signal { signal: 15 }),
        ("exec_exit", PeerExec::Exit { code: Some(3), signal: None }),
        ("exec_failed", PeerExec::Failed { reason: text("no such file") }),
    ]));
    samples
}
