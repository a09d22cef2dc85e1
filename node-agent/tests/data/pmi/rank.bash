# A rank in a few lines of bash: what MPI_Init and MPI_Finalize say to a process manager.
say() { printf '%s\n' "$*" >&"$PMI_FD"; }
hear() { IFS= read -r answer <&"$PMI_FD" || { echo "rank $PMI_RANK: no answer to $1"; exit 99; }; }
ask() { say "$@"; hear "$@"; }
get() { ask "cmd=get kvsname=$kvs key=$1"; value=${answer##*value=}; }
init() {
    ask cmd=init pmi_version=1 pmi_subversion=1
    ask cmd=get_my_kvsname
    kvs=${answer##*kvsname=}
}
