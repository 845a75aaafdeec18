---------------------------- MODULE Transactions ----------------------------
(***************************************************************************)
(* Transactional ids (KIP-98, KIP-360, KIP-588, KIP-890): which pair of     *)
(* producer ID and epoch an instance of a producer is given, and what       *)
(* becomes of its transactions, when requests are late, answers are lost    *)
(* and leaders die.                                                        *)
(*                                                                         *)
(* One transactional id; others do not touch it, as new producer IDs come   *)
(* from the quorum's own blocks and are used up (T5).                       *)
(***************************************************************************)
EXTENDS ReplicatedLog

CONSTANTS
    Instances,      \* of the producer; an older one may be a zombie
    AtOnce,         \* whether a transaction is complete with the record that decides it (metadata version 9)
    EpochEach,      \* whether EndTxn gives each transaction an epoch (KIP-890, metadata version 13); with AtOnce
    MaxEpoch,       \* the highest epoch that a producer is given
    MaxRecords,     \* bounds of the model
    MaxRequests

VARIABLES
    requests,       \* that were sent, each with a number
    pair,           \* [Instances -> the pair that it has, or NoPair]
    began,          \* history: [Instances -> which transaction it knows to have begun, as they are counted; 0: none]
    waits,          \* [Instances -> the number of the request whose answer it waits for, 0: none]
    answered,       \* history: {<<instance, pair>>} that was given
    outcomes        \* history: {<<pair, index of the transaction, outcome>>} that were acknowledged

transactionVars == <<requests, pair, began, waits, answered, outcomes>>
vars == <<logVars, transactionVars>>

NoPair == <<-1, -1>>
Unknown == [status |-> "none", pair |-> NoPair, last |-> NoPair]
Idle == {"empty", "committed", "aborted"}
Prepared == {"prepare commit", "prepare abort"}
Completed(status) == IF status = "prepare commit" THEN "committed" ELSE "aborted"
Outcome(status) == IF AtOnce THEN Completed(status) ELSE status

IsState(record) == record.type = "state"
StateIndex(l) ==
    LET all == {n \in 1..Len(l) : IsState(l[n])} IN IF all = {} THEN 0 ELSE CHOOSE n \in all : \A k \in all : k <= n
StateOf(l) == IF StateIndex(l) = 0 THEN Unknown ELSE l[StateIndex(l)].state
Applied(c) == SubSeq(committed, 1, applied[c])
State(c) == StateOf(Applied(c))

(* The next producer ID of the quorum's own (T5): how many were used.       *)
NextId(l) == Cardinality({l[n].state.pair[1] : n \in {k \in 1..Len(l) : IsState(l[k])}} \ {-1})

Init ==
    /\ LogInit
    /\ requests = {}
    /\ pair = [i \in Instances |-> NoPair]
    /\ began = [i \in Instances |-> 0]
    /\ waits = [i \in Instances |-> 0]
    /\ answered = {}
    /\ outcomes = {}

-----------------------------------------------------------------------------
(* The decision table. Each says the next state, and what is answered.      *)

Refused == [code |-> "refused", pair |-> NoPair]
Again == [code |-> "concurrent", pair |-> NoPair]
Granted(p) == [code |-> "granted", pair |-> p]
Result(state, answer) == [state |-> state, answer |-> answer]

Fence(state, last) ==
    [status |-> Outcome("prepare abort"), pair |-> <<state.pair[1], state.pair[2] + 1>>, last |-> last]

(* Without a transaction, and with the next epoch or a new ID.              *)
Renewed(state, last, fresh) ==
    LET current == state.pair
    IN [status |-> "empty", last |-> last,
        pair |-> IF current[2] >= MaxEpoch THEN <<fresh, 0>> ELSE <<current[1], current[2] + 1>>]

Initialise(state, supplied, fresh) ==
    LET current == state.pair
        renewed == Renewed(state, supplied, fresh)
    IN IF state = Unknown
       THEN LET first == [status |-> "empty", pair |-> <<fresh, 0>>, last |-> NoPair] IN Result(first, Granted(first.pair))
       ELSE IF supplied \notin {NoPair, current, state.last} THEN Result(state, Refused)
       ELSE IF state.status \in Prepared THEN Result(state, Again)
       ELSE IF state.status = "ongoing"
       THEN IF supplied \notin {NoPair, current} THEN Result(state, Refused)
            ELSE IF AtOnce THEN Result(renewed, Granted(renewed.pair))
            ELSE Result(Fence(state, supplied), Again)
       ELSE IF supplied = state.last /\ supplied # NoPair /\ current[2] <= MaxEpoch
       THEN Result(state, Granted(current))
       ELSE Result(renewed, Granted(renewed.pair))

Owned(state, p) == state # Unknown /\ state.pair = p /\ p[2] <= MaxEpoch

Begin(state, p) ==
    IF ~Owned(state, p) THEN Result(state, Refused)
    ELSE IF state.status \in Prepared THEN Result(state, Again)
    ELSE Result([state EXCEPT !.status = "ongoing"], Granted(p))

End(state, p, wish) ==
    LET prepared == IF wish = "committed" THEN "prepare commit" ELSE "prepare abort"
    IN IF ~Owned(state, p) THEN Result(state, Refused)
       ELSE IF state.status = "ongoing" THEN Result([state EXCEPT !.status = Outcome(prepared)], Granted(p))
       ELSE IF state.status = wish THEN Result(state, Granted(p))
       ELSE IF state.status = prepared THEN Result(state, Again)
       ELSE Result(state, Refused)

(* The last pair, as its producer has it.                                   *)
LastPair(state) == <<state.last[1], IF state.last[2] > MaxEpoch THEN MaxEpoch ELSE state.last[2]>>

(* An id that is Empty says by the last pair what was decided: after a       *)
(* commit at the highest epoch that has one which no producer has.           *)
WasCommitted(state) == state.status = "committed" \/ state.last[2] > MaxEpoch

ToldAgain(state, p, wish, fresh) ==
    LET renewed == Renewed(state, p, fresh)
    IN IF state.status = "ongoing" \/ (wish = "committed") # WasCommitted(state) THEN Result(state, Refused)
       ELSE IF state.pair[2] <= MaxEpoch THEN Result(state, Granted(state.pair))
       ELSE Result(renewed, Granted(renewed.pair))

(* EndTxn from version 5 on (decision 0056). Who comes with the last pair is *)
(* answered as before, until a transaction has begun with the newer one.     *)
(* Used-up epochs take two records in the log, and one step here.            *)
EndEach(state, p, wish, fresh) ==
    LET ended == [state EXCEPT !.status = wish, !.pair = <<p[1], p[2] + 1>>, !.last = p]
        after == IF state.status \in Idle THEN Renewed(state, p, fresh)
                 ELSE IF p[2] < MaxEpoch THEN ended
                 ELSE Renewed(state, IF wish = "committed" THEN <<p[1], MaxEpoch + 1>> ELSE p, fresh)
    IN IF state # Unknown /\ p = LastPair(state) THEN ToldAgain(state, p, wish, fresh)
       ELSE IF ~Owned(state, p) \/ (state.status \in Idle /\ wish = "committed") THEN Result(state, Refused)
       ELSE Result(after, Granted(after.pair))

Decided(state, r, fresh) ==
    CASE r.type = "init" -> Initialise(state, r.pair, fresh)
      [] r.type = "begin" -> Begin(state, r.pair)
      [] r.type = "end" -> IF EpochEach THEN EndEach(state, r.pair, r.wish, fresh) ELSE End(state, r.pair, r.wish)

-----------------------------------------------------------------------------
(* The leader. Even a refusal leaves only when an entry of this leader was  *)
(* applied behind the decision (D5), so each decision is an entry.          *)

Decide(c, r) ==
    LET result == Decided(State(c), r, NextId(Applied(c)))
    IN /\ MayDecide(c)
       /\ Len(committed) < MaxRecords
       /\ Propose(c, <<IF result.state = State(c)
              THEN [type |-> "confirmation", term |-> leads[c], request |-> r, answer |-> result.answer]
              ELSE [type |-> "state", term |-> leads[c], state |-> result.state, request |-> r, answer |-> result.answer]>>)
       /\ UNCHANGED <<committed, newest, leads, applied, transactionVars>>

(* Duties: markers are written, and a transaction whose time is up is       *)
(* aborted. Its producer may come back for the next epoch (KIP-588).        *)
Duty(c, state) ==
    /\ MayDecide(c)
    /\ Len(committed) < MaxRecords
    /\ Propose(c, <<[type |-> "state", term |-> leads[c], state |-> state,
                     request |-> [number |-> 0], answer |-> Refused]>>)
    /\ UNCHANGED <<committed, newest, leads, applied, transactionVars>>

Complete(c) ==
    LET state == State(c)
    IN state.status \in Prepared /\ Duty(c, [state EXCEPT !.status = Completed(state.status)])

TimeOut(c) == State(c).status = "ongoing" /\ Duty(c, Fence(State(c), State(c).pair))

(* Transactions are counted by the records that begin them.                 *)
Begins(n) == /\ IsState(committed[n]) /\ committed[n].state.status = "ongoing"
             /\ StateOf(SubSeq(committed, 1, n - 1)).status # "ongoing"
Count(last) == Cardinality({n \in 1..last : Begins(n)})

(* The record that ended a transaction.                                      *)
EndOf(count) ==
    CHOOSE n \in 2..Len(committed) :
        /\ IsState(committed[n]) /\ committed[n].state.status # "ongoing" /\ Count(n) = count
        /\ StateOf(SubSeq(committed, 1, n - 1)).status = "ongoing"

GivesPair(r) == r.type = "init" \/ (EpochEach /\ r.type = "end")

Answer(c) ==
    LET record == batch[c].records[1]
        r == record.request
        i == r.instance
        heard == r.number # 0 /\ waits[i] = r.number
        granted == record.answer.code = "granted"
    IN /\ Apply(c)
       /\ IF r.number = 0 THEN UNCHANGED transactionVars
          ELSE /\ answered' = IF granted /\ GivesPair(r)
                              THEN answered \cup {<<i, record.answer.pair>>} ELSE answered
               /\ outcomes' = IF ~granted \/ r.type # "end" THEN outcomes
                              ELSE IF record.type = "state" THEN outcomes \cup {<<r.pair, batch[c].base + 1, r.wish>>}
                              ELSE IF EpochEach /\ r.of # 0 THEN outcomes \cup {<<r.pair, EndOf(r.of), r.wish>>}
                              ELSE outcomes
               /\ waits' = IF heard THEN [waits EXCEPT ![i] = 0] ELSE waits
               /\ began' = IF heard /\ granted /\ r.type # "init"
                           THEN [began EXCEPT ![i] = IF r.type = "begin" THEN Count(batch[c].base + 1) ELSE 0]
                           ELSE began
               /\ pair' = IF heard /\ granted /\ GivesPair(r)
                          THEN [pair EXCEPT ![i] = record.answer.pair] ELSE pair
               /\ UNCHANGED requests

-----------------------------------------------------------------------------
(* Instances. One request at a time; one without an answer is asked again.  *)

Ask(i, r) ==
    LET number == Cardinality(requests) + 1
    IN /\ Cardinality(requests) < MaxRequests
       /\ requests' = requests \cup {[r EXCEPT !.number = number]}
       /\ waits' = [waits EXCEPT ![i] = number]
       /\ began' = IF r.type = "end" THEN began ELSE [began EXCEPT ![i] = 0]
       /\ UNCHANGED <<logVars, pair, answered, outcomes>>

Wish(i, type, wish) ==
    [type |-> type, instance |-> i, number |-> 0, pair |-> pair[i], wish |-> wish,
     of |-> IF type = "end" THEN began[i] ELSE 0]

InstanceAsks(i) ==
    \/ Ask(i, Wish(i, "init", "none"))
    \/ pair[i] # NoPair /\ (Ask(i, Wish(i, "begin", "none"))
                            \/ \E wish \in {"committed", "aborted"} : Ask(i, Wish(i, "end", wish)))

Next ==
    \/ \E i \in Instances : InstanceAsks(i)
    \/ \E c \in Controllers :
        \/ (Elect(c) \/ Depose(c) \/ Serve(c) \/ Commit(c)) /\ UNCHANGED transactionVars
        \/ Answer(c) \/ Complete(c) \/ TimeOut(c)
        \/ \E r \in requests : Decide(c, r)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

(* T1: states change as Kafka's validPreviousStates allows.                 *)
T1 == \A n \in 1..Len(committed) : IsState(committed[n]) =>
        LET before == StateOf(SubSeq(committed, 1, n - 1)).status
            after == committed[n].state.status
        IN CASE before = "none" -> after = "empty"
             [] before \in Idle -> after \in {"empty", "ongoing"}
             [] before = "ongoing" -> after \in {"ongoing"} \cup (IF AtOnce THEN Idle ELSE Prepared)
             [] OTHER -> after = Completed(before)

(* T4: the epoch of a producer ID never falls and rises by one at most; a   *)
(* new ID begins at 0, when the epochs of the old one are used up.          *)
T4 == \A n \in 1..Len(committed) : IsState(committed[n]) =>
        LET before == StateOf(SubSeq(committed, 1, n - 1))
            after == committed[n].state
        IN \/ before = Unknown
           \/ before.pair[1] = after.pair[1] /\ after.pair[2] - before.pair[2] \in {0, 1}
           \/ before.pair[1] < after.pair[1] /\ after.pair[2] = 0 /\ before.pair[2] >= MaxEpoch

(* No pair goes to two instances.                                           *)
OnePairOneInstance == \A one, other \in answered : one[2] = other[2] => one[1] = other[1]

(* What only fences is given to nobody.                                     *)
NobodyHasAFence == \A one \in answered : one[2][2] <= MaxEpoch

(* A transaction has one outcome, and the one that was acknowledged.        *)
AcknowledgedOutcomes ==
    \A one \in outcomes :
        LET state == committed[one[2]].state
        IN IF state.status = "empty" THEN (one[3] = "committed") = WasCommitted(state)
           ELSE state.status = Outcome(IF one[3] = "committed" THEN "prepare commit" ELSE "prepare abort")

(* Nobody ends another transaction than the one that it meant. Without an    *)
(* epoch for each, a late EndTxn ends the next one.                         *)
NothingTorn ==
    \A n \in 1..Len(committed) :
        LET r == committed[n].request
            ends == /\ IsState(committed[n]) /\ StateOf(SubSeq(committed, 1, n - 1)).status = "ongoing"
                    /\ r.number # 0 /\ r.type = "end"
        IN ends => r.of \in {0, Count(n)}
=============================================================================
