//! Determines from the environment whether an `mpirun` has started this process, and to which nodes its ranks are
//! bound.

use rms_api::negotiate::Keeps;
use rms_model::hostlist;
use rms_model::variables::PMI_MARK;

/// Returns the nodes that the ranks keep. Ranks that `mpirun` has started can leave only together: in MPICH,
/// `MPI_Finalize` waits for all ranks of the world; Open MPI keeps a daemon on each node. Ranks that our own process
/// manager (PMI) has started can leave one by one.
pub(super) fn keeps(variable: impl Fn(&'static str) -> Option<String>) -> Keeps {
    let number = |name| variable(name).and_then(|value| value.parse::<u64>().ok());
    let first_node = || hostlist::expand(&variable("RMS_NODELIST")?).ok()?.into_iter().next();
    let here = |name: Option<String>| name.map_or(Keeps::All, |name| Keeps::Nodes(vec![name]));
    if variable("OMPI_COMM_WORLD_SIZE").is_some() || variable("PMIX_RANK").is_some() {
        // The daemons of Open MPI are on all of its nodes, with or without ranks. Open MPI 5 does not say on how many.
        return match number("OMPI_MCA_orte_num_nodes") {
            // On one node, mpirun passes nothing more to its ranks: the job's script started it, so it is on the first
            // node.
            Some(1) => here(variable("RMS_NODE_NAME").or_else(first_node)),
            Some(_) | None => Keeps::All,
        };
    }
    let Some(rank) = variable("PMI_RANK") else { return Keeps::Nothing };
    let mark = variable("PMI_FD").map(|socket| format!("{socket}:{rank}"));
    let hydra_node = variable("PMI_HOSTNAME");
    if hydra_node.is_none() && mark.is_some() && variable(PMI_MARK) == mark {
        return Keeps::Nothing;
    }
    // In a spawned group, the world is not everything that `mpirun` has started.
    let is_one_node = number("PMI_SIZE").is_some() && number("MPI_LOCALNRANKS") == number("PMI_SIZE");
    match is_one_node && variable("PMI_SPAWNED").is_none() {
        true => here(hydra_node.filter(|node| node != "localhost").or_else(|| variable("RMS_NODE_NAME"))),
        false => Keeps::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(environment: &[(&str, &str)], expected: &Keeps) {
        let found = keeps(|name| {
            let known = environment.iter().find(|(known, _)| *known == name);
            known.map(|(_, value)| (*value).to_owned())
        });
        assert_eq!(found, *expected, "{environment:?}");
    }

    fn only(node: &str) -> Keeps {
        Keeps::Nodes(vec![node.to_owned()])
    }

    #[test]
    fn what_no_mpirun_has_started_can_leave() {
        check(&[("RMS_NODE_NAME", "a1")], &Keeps::Nothing);
        check(&[("PMI_FD", "7"), ("PMI_RANK", "3"), ("PMI_SIZE", "4"), (PMI_MARK, "7:3")], &Keeps::Nothing);
        let alone = [("PMI_FD", "7"), ("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("MPI_LOCALNRANKS", "1")];
        check(&[&alone[..], &[(PMI_MARK, "7:0"), ("PMI_SPAWNED", "1")]].concat(), &Keeps::Nothing);
    }

    #[test]
    fn ranks_of_mpich_under_its_mpirun_are_bound_to_their_nodes() {
        let rank = [("PMI_FD", "12"), ("PMI_RANK", "0"), ("PMI_HOSTNAME", "a1"), ("RMS_NODE_NAME", "a9")];
        let of = |size, local| [&rank[..], &[("PMI_SIZE", size), ("MPI_LOCALNRANKS", local)]].concat();
        check(&of("4", "2"), &Keeps::All);
        check(&of("2", "2"), &only("a1"));
        check(&[&of("2", "2")[..], &[("PMI_SPAWNED", "1")]].concat(), &Keeps::All);
        // In a task of `rms run`, whose mark its ranks inherit.
        check(&[&of("4", "2")[..], &[(PMI_MARK, "12:0")]].concat(), &Keeps::All);
        // Intel MPI does not name the node.
        check(&[("PMI_FD", "9"), ("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "1")], &Keeps::All);
    }

    #[test]
    fn ranks_of_open_mpi_are_bound_to_the_nodes_of_its_daemons() {
        let rank = [("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), ("PMIX_RANK", "0")];
        let of = |more: &[(&'static str, &'static str)]| [&rank[..], more].concat();
        check(&of(&[("OMPI_MCA_orte_num_nodes", "1"), ("RMS_NODE_NAME", "a2")]), &only("a2"));
        check(&of(&[("OMPI_MCA_orte_num_nodes", "1"), ("RMS_NODELIST", "a[3-4,1]")]), &only("a3"));
        check(&of(&[("OMPI_MCA_orte_num_nodes", "3"), ("RMS_NODE_NAME", "a2")]), &Keeps::All);
        check(&of(&[("RMS_NODE_NAME", "a2")]), &Keeps::All);
    }
}
