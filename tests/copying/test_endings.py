"""What a copier has logged is counted as it was meant."""

from __future__ import annotations

from tests.copying.endings import Endings, endings

_LINE = "14:05:09,573 DEBUG TransactionManager [Producer clientId=producer-a, transactionalId=a] Transition from state "
_REFUSED = " org.apache.kafka.common.errors.IllegalGenerationException: Specified group generation id is not valid."


def _printed(*transitions: str) -> str:
    return "".join(f'{_LINE}{one}\n{{"stage":"ProcessLoop"}}\n' for one in transitions)


def test_each_transaction_has_one_ending() -> None:
    begin = "READY to IN_TRANSACTION"
    one = _printed(
        *("UNINITIALIZED to INITIALIZING", "INITIALIZING to READY"),
        *(begin, "IN_TRANSACTION to COMMITTING_TRANSACTION", "COMMITTING_TRANSACTION to READY"),
        *(begin, "IN_TRANSACTION to ABORTING_TRANSACTION", "ABORTING_TRANSACTION to READY"),
        *(begin, f"IN_TRANSACTION to error state ABORTABLE_ERROR{_REFUSED}"),
        *("ABORTABLE_ERROR to ABORTING_TRANSACTION", "ABORTING_TRANSACTION to READY"),
    )
    other = _printed(
        *(begin, "IN_TRANSACTION to COMMITTING_TRANSACTION", "COMMITTING_TRANSACTION to READY"),
        *(begin, "IN_TRANSACTION to COMMITTING_TRANSACTION"),
    )
    assert endings([one, other]) == Endings(2, 1, {"IllegalGenerationException": 1}, 1)
    assert endings([""]) == Endings(0, 0, {}, 0)
