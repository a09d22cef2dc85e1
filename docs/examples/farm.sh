#!/bin/sh
#RMS --workers -J farm
# A worker of a task farm. One runs on each node; each takes a file of todo/ after the other, and leaves a result in
# done/ under the same name. What a worker has begun lies in doing/.
#
#   rms submit -N 4 farm.sh              on four nodes
#   rms submit --malleable 2-64 farm.sh  on two nodes or more, as there are idle ones
#
# A node that is taken back gets TERM, and KILL after the grace time (setting kill_grace). The worker puts back what it
# could not finish, so nothing is lost; if it is killed, the file stays in doing/.

mkdir -p todo doing done
leaving=
trap 'leaving=yes' TERM

work() {
    "${FARM_WORK:-wc}" "$1"
}

while [ -z "$leaving" ]; do
    item=$(ls todo | head -n 1)
    [ -n "$item" ] || exit 0
    mine=doing/$item.$RMS_TASK_ID
    # Who renames it first has it.
    mv "todo/$item" "$mine" 2>/dev/null || continue
    if work "$mine" >"done/.$item" && mv "done/.$item" "done/$item"; then
        # TERM may have ended the command.
        rm "$mine" || rm -f "$mine"
    else
        rm -f "done/.$item"
        mv "$mine" "todo/$item" || mv "$mine" "todo/$item"
        # TERM reached the work, too. Without it, the item itself is at fault.
        [ -n "$leaving" ] || exit 1
    fi
done
