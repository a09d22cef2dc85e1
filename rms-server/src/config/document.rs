//! The documentation of the configuration: a file in which every value stands, commented out, with its default.

/// What `rms-server print-config` prints.
pub const DEFAULTS: &str = r##"# Configuration of rms-server. Each value is shown with its default; remove the '# ' to change it.
# 'rms-server check-config FILE' checks a file. Durations are written 250ms, 90s, 1h30m, 2d or HH:MM:SS.

# Where agents and clients reach the server (UDP). Port 0 takes a free one; the file 'address' in the data
# directory says which.
# listen = "0.0.0.0:7117"

# Where agents and clients reach this server, for join tokens and client.toml: a host name or an address, with another
# port or without. Absent: the address above or, where that is 0.0.0.0, the one of this machine that leads to others.
# advertise = ""

# The socket for commands on this machine, which cost less over it than over the network. Its directory must belong to the
# server's user, and nobody else may write to it. Absent: 'server.sock' in the RuntimeDirectory of the unit, where all users
# find it, else 'socket' in the data directory, which only the server's user can reach.
# socket = ""

# Initial values. What 'rms admin set KEY VALUE' changed is kept in the journal and wins over this file, also
# after a restart; 'rms admin show' prints what is in force.
[settings]

# How long the nodes of a job that ended stay reserved for the others' next request.
# fair_start = "0s"

# When they stay reserved so: "always", or "if_wanted", only while an application with an external launcher waits that
# could use them.
# ghosts = "always"

# Percent of a cluster's nodes that one application with an external launcher may choose from: it is shown so many, and may
# ask for so many, one at least. A cluster may have its own: rms admin set view_share@CLUSTER 50.
# view_share = 100

# How nodes are given to jobs: "nodes" (each belongs to one job) or "cores" (jobs share nodes, each with cores of its
# own). A cluster may have its own: rms admin set allocation@CLUSTER cores.
# allocation = "nodes"

# Where jobs share nodes: MiB for each CPU of a job that asks for no memory; 0 counts none. And the most CPUs that a job
# may ask for, on any cluster; "none" for no bound. A cluster may have its own of both, as above.
# memory_per_cpu = 0
# max_cpus = "none"

# What a cluster has of counted things that belong to no node, for jobs that ask with --licences: "matlab:20,ansys:5". A
# cluster may have its own, as above.
# licences = "none"

# Under the policy "slowdown": up to which slowdown a running job that was submitted with --share lends CPUs to one that
# would have to wait: a number, "infinite", "average" of all jobs that have started, or "mean", "median" or "p70" of those
# that run; and which part of its CPUs on a node. A cluster may have its own of both, as above.
# max_slowdown = 10
# sharing_factor = "0.5"

# Of how many jobs one that begins so may have nodes; how many jobs may be on the same CPUs one inside the other, of which
# guests lend, too, if there may be more than two; how many of those that run are looked at for it ("none": all), and by
# which model run times are estimated: "worst" (the node with the fewest of its CPUs sets the pace) or "ideal"; and
# whether it may have free nodes, or free cores of other nodes, beside theirs.
# max_mates = 2
# max_sharers = 2
# max_candidates = "none"
# runtime_model = "worst"
# mix_free_nodes = "no"

# The least time between two scheduling passes.
# resched_timer = "0s"

# How many waiting applications a pass considers, in order; 0 considers all. With "auto", as many as it can within
# pass_time, and at least 200: what it is now stands in 'rms admin status'.
# queue_depth = 1000
# pass_time = "100ms"

# How long an agent may be away before its node is lost and the jobs on it are ended.
# node_lost_after = "1m"

# What becomes of the jobs of a lost node: "fail", or "requeue". --requeue and --no-requeue of a job count
# before this; what 'rms run' shows is started again only with --requeue.
# lost_policy = "fail"

# Between TERM and KILL.
# kill_grace = "10s"

# The wall time of a job that names none, and the longest that is accepted.
# default_wall = "1h"
# max_wall = "365d"

# The most jobs in the system at once; a submit beyond it is refused.
# max_jobs = 1000000

# What users may bring in; 'rms admin set job_limit@USER' and the like are for one. Jobs of a user in the system at once:
# job_limit = "none"
# MiB that scripts and environments of a user's jobs may take; environments that several jobs share count once:
# script_limit = 256
# Submits of a user in a second, those of a minute at once; each 4 KiB of script and environment count as one more:
# submit_limit = 1000

# Who may start before whom: "views" (FCFS, each pass places the queue anew), "fcfs" (nothing passes a waiting job),
# "easy" (nothing delays the first job that waits), "conservative" (every job keeps the start it was promised) or
# "slowdown" (as "views", and who would have to wait may begin on CPUs that running jobs lend).
# policy = "views"

# How long an application may be subscribed by a launcher without a request; "0s" is for ever.
# request_timeout = "1h"

# How long a launcher may take to launch or accept once its application was started; "0s" is the whole wall time.
# start_timeout = "1m"

# How long the launcher of an application may be away before it is lost; "0s" is not at all.
# launcher_grace = "1m"

# For how long after a restart of the server nodes are planned with whose agents are not back yet: no job starts with
# less meanwhile; "0s" is not at all.
# restart_grace = "10s"

# What becomes of running processes whose launcher is lost: "end", as 001 does, or "run", to let them finish.
# launcher_policy = "end"

# How long an application may take to name the nodes that it frees, once a smaller stage of its profile is due.
# release_grace = "0s"

# How long processes on nodes that their application says it has left have to end by themselves, before TERM.
# exit_grace = "2s"

# Which running applications are offered nodes that nobody waits for: "never", "equal_share" (all the same, by the shares
# of their users), "fewest_above_minimum" or "efficiency" (who gains the most speed, as far as declared).
# offer_idle = "equal_share"

# For whom running applications are asked to give nodes back: "never", "priority" (the first waiting job, by jobs of lower
# priority) or "queue" (the first waiting job, by all but those of higher priority). For drained nodes they always are.
# shrink_for = "queue"

# For how long an offer stands, and its nodes are held.
# offer_valid = "30s"

# For which waiting jobs offers that nobody has answered are taken back before: "never", "priority" (for jobs of a
# higher priority) or "queue" (for the first waiting job, but of a lower priority).
# offer_recall = "priority"

# So long after an offer was declined, only more than what was declined is offered.
# offer_again = "1m"

# By so much all that running applications gain may make a waiting job start later than it would without.
# delay_tolerance = "0s"

# What a gained node costs for an hour, in thousandths of your currency, and how far the server goes down in a negotiation,
# in percent of it. 'rms admin set price@CLUSTER' for one cluster.
# price = 0
# price_floor = 100

# What a user may spend on gained nodes in all, in thousandths, or "none" for no bound. 'rms admin set budget@USER' for one.
# budget = "none"

# How many nodes beyond their first ones all jobs of a user may have together, or "none". 'rms admin set growth_limit@USER'
# for one.
# growth_limit = "none"

# The weight of a user where idle nodes are shared. 'rms admin set share@USER' for one.
# share = 1

# How long the history keeps jobs that have ended, as "90d", and how many of them, the newest; "none" for no bound. What is
# beyond goes bit by bit, and the files shrink.
# history_keep = "none"
# history_most = "none"

[certificates]

# How long the certificates of agents, users and the server are valid; they are renewed before.
# life = "90d"

[journal]

# A snapshot is written, and the facts before it are deleted, after so many facts or so many MiB of them.
# snapshot_facts = 100000
# snapshot_mib = 64

[limits]

# Live connections over all, and of one user or admin.
# links = 20000
# links_per_user = 256

# Calls of one connection that are worked on at once; more of them wait.
# calls_per_link = 256

# Attempts to redeem a token, and attempts to renew a certificate, in a second, over all; more are refused.
# joins_per_second = 50
"##;
