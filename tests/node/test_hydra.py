from __future__ import annotations

from muster.node.hydra import HydraOutput, abort_in

LAUNCH = (
    "HYDRA_LAUNCH: /opt/my mpi/bin/hydra_pmi_proxy --control-port 127.1.1.1:4083 --rmk user "
    "--pgid 0 --proxy-id 1 \n"
)


def test_commands_are_told_from_what_is_for_people() -> None:
    output = HydraOutput(["127.1.1.1", "127.1.1.2"])
    assert output.feed(LAUNCH[:20].encode()) == ([], [])
    commands, others = output.feed((LAUNCH[20:] + "HYDRA_LAUNCH_END\n\nhello\n").encode())
    assert others == ["hello"]
    ((node, text),) = commands
    assert node == 1
    assert text.startswith("exec '/opt/my mpi/bin/hydra_pmi_proxy' --control-port 127.1.1.1:4083")


def test_how_a_rank_died() -> None:
    output = HydraOutput(["127.1.1.1", "127.1.1.2"])
    output.feed(
        b"=   BAD TERMINATION OF ONE\n=   PID 18900 RUNNING AT 127.1.1.2\n=   EXIT CODE: 9\n"
    )
    output.feed(b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n")
    assert output.died == "a rank on node-1 (process 18900 there) died: Killed (signal 9)"


def test_who_has_called_mpi_abort() -> None:
    words = "ValueError: x\nAbort(7) on node 3 (rank 3 in comm 0): application called MPI_Abort"
    assert abort_in(words) == (3, 7)
    assert abort_in("Abortion") is None
