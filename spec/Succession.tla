----------------------------- MODULE Succession -----------------------------
(***************************************************************************)
(* Disks are lost under live agents. Operators found quorums anew, or      *)
(* restore old copies; they name a predecessor and a floor, or forget to,  *)
(* or name wrong ones (decisions 0026 and 0027). A quorum is one state     *)
(* here: how it is replicated is ReplicatedLog's matter.                   *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Agents,
    MaxQuorums,     \* foundings are 1..MaxQuorums, in the order in which they were ordered
    MaxId,          \* blocks of one ID each: 0..MaxId
    MaxAnswers,     \* on their way at once: a bound of the model
    OperatorKnows   \* whether every floor lies above all that was ever handed out, and every founding has one

VARIABLES
    live,           \* the founding whose quorum runs; 0: all disks are lost
    founded,        \* how many foundings were ordered
    place,          \* [foundings -> what founding.json says: whose place it takes, 0: nobody's; and from which ID on]
    state,          \* replicated: the founding in the log, 0: none yet; the next ID; the highest ID in evidence, -1: none
    copies,         \* of disks, one at most: states that were recorded
    answers,        \* on their way to agents
    known,          \* [Agents -> the founding as of the newest answer, 0: none]
    reserve,        \* [Agents -> the IDs at hand]
    highest,        \* [Agents -> the highest ID ever held, -1: none]
    used,           \* history: [Agents -> the IDs that left it since it let go of any]
    handedOut,      \* history: the IDs that some quorum has handed out
    given           \* history: [IDs -> how often it was claimed]

vars == <<live, founded, place, state, copies, answers, known, reserve, highest, used, handedOut, given>>
agentVars == <<known, reserve, highest, used, given>>

Ids == 0..MaxId
Nobody == [predecessor |-> 0, floor |-> 0]
Max(x, y) == IF x > y THEN x ELSE y

Init ==
    /\ live = 1 /\ founded = 1
    /\ place = [q \in 1..MaxQuorums |-> Nobody]
    /\ state = [founding |-> 1, next |-> 0, evidence |-> -1]
    /\ copies = {} /\ answers = {}
    /\ known = [a \in Agents |-> 0]
    /\ reserve = [a \in Agents |-> {}] /\ used = [a \in Agents |-> {}]
    /\ highest = [a \in Agents |-> -1]
    /\ handedOut = {} /\ given = [id \in Ids |-> 0]

-----------------------------------------------------------------------------
(* Operators.                                                               *)

Copy ==
    /\ live # 0 /\ state.founding = live /\ copies = {}
    /\ copies' = copies \cup {state}
    /\ UNCHANGED <<live, founded, place, state, answers, handedOut, agentVars>>

LoseAllDisks ==
    /\ live # 0
    /\ live' = 0
    /\ UNCHANGED <<founded, place, state, copies, answers, handedOut, agentVars>>

Begin(successor, begun) ==
    /\ live = 0 /\ founded < MaxQuorums
    /\ OperatorKnows => successor.predecessor # 0 /\ \A id \in handedOut : id < successor.floor
    /\ founded' = founded + 1 /\ live' = founded + 1
    /\ place' = [place EXCEPT ![founded + 1] = successor]
    /\ state' = begun
    /\ UNCHANGED <<copies, answers, handedOut, agentVars>>

(* `quorum found`, of blank members.                                        *)
Found ==
    \E p \in 0..founded, f \in 0..(MaxId + 1) :
        Begin(IF p = 0 THEN Nobody ELSE [predecessor |-> p, floor |-> f], [founding |-> 0, next |-> 0, evidence |-> -1])

(* `storage recover`, of one copy.                                          *)
Restore ==
    \E c \in copies, f \in 0..(MaxId + 1) :
        f >= c.next /\ Begin([predecessor |-> c.founding, floor |-> f], c)

(* `raise-floor`, above what is shown.                                      *)
RaiseFloor ==
    /\ live # 0 /\ state.evidence >= state.next
    /\ state' = [state EXCEPT !.next = state.evidence + 1]
    /\ UNCHANGED <<live, founded, place, copies, answers, handedOut, agentVars>>

-----------------------------------------------------------------------------
(* The quorum.                                                              *)

Pending == state.founding # live

(* The end of the hearing (F5, F6).                                         *)
Record ==
    /\ live # 0 /\ Pending
    /\ state' = [state EXCEPT !.founding = live, !.next = Max(state.next, place[live].floor)]
    /\ UNCHANGED <<live, founded, place, copies, answers, handedOut, agentVars>>

Answer(a, block) ==
    [agent |-> a, founding |-> state.founding, block |-> block,
     place |-> IF state.founding = 0 THEN Nobody ELSE place[state.founding]]

Keeps(a, successor) == known[a] = successor.predecessor /\ highest[a] < successor.floor

(* A heartbeat: what the agent holds is evidence if it was not handed out   *)
(* here, unless the floor that is to come into force lies above it.         *)
Beat(a) ==
    /\ live # 0 /\ Cardinality(answers) < MaxAnswers
    /\ LET held == known[a] # 0 /\ highest[a] >= 0
           expected == Pending /\ place[live].predecessor # 0 /\ Keeps(a, place[live])
       IN state' = IF held /\ highest[a] >= state.next /\ ~expected
                   THEN [state EXCEPT !.evidence = Max(state.evidence, highest[a])] ELSE state
    /\ answers' = answers \cup {Answer(a, -1)}
    /\ UNCHANGED <<live, founded, place, copies, handedOut, agentVars>>

Allocate(a) ==
    /\ live # 0 /\ ~Pending /\ Cardinality(answers) < MaxAnswers
    /\ state.evidence < state.next                                 \* F4
    /\ state.next <= MaxId
    /\ state' = [state EXCEPT !.next = @ + 1]
    /\ handedOut' = handedOut \cup {state.next}
    /\ answers' = answers \cup {Answer(a, state.next)}
    /\ UNCHANGED <<live, founded, place, copies, agentVars>>

-----------------------------------------------------------------------------
(* Agents. An answer may be late, and from a quorum that is lost.           *)

Take(a, m) ==
    LET meets == m.founding # 0 /\ m.founding # known[a]
        \* An agent that knew of none has nothing to let go of: it was never told whose its IDs are.
        letsGo == meets /\ known[a] # 0 /\ ~(m.place.predecessor # 0 /\ Keeps(a, m.place))
        kept == IF letsGo THEN {} ELSE reserve[a]
        takes == m.block >= 0 /\ m.block > highest[a]              \* A3
    IN /\ m.agent = a
       /\ answers' = answers \ {m}
       /\ known' = [known EXCEPT ![a] = IF meets THEN m.founding ELSE @]
       /\ reserve' = [reserve EXCEPT ![a] = IF takes THEN kept \cup {m.block} ELSE kept]
       /\ highest' = [highest EXCEPT ![a] = IF takes THEN m.block ELSE @]
       /\ used' = [used EXCEPT ![a] = IF letsGo THEN {} ELSE @]
       /\ UNCHANGED <<live, founded, place, state, copies, handedOut, given>>

Claim(a) ==
    \E id \in reserve[a] :
        /\ \A other \in reserve[a] : id <= other                   \* A1
        /\ reserve' = [reserve EXCEPT ![a] = @ \ {id}]
        /\ used' = [used EXCEPT ![a] = @ \cup {id}]
        /\ given' = [given EXCEPT ![id] = @ + 1]
        /\ UNCHANGED <<live, founded, place, state, copies, answers, handedOut, known, highest>>

Die(a) ==
    /\ known' = [known EXCEPT ![a] = 0]
    /\ reserve' = [reserve EXCEPT ![a] = {}] /\ used' = [used EXCEPT ![a] = {}]
    /\ highest' = [highest EXCEPT ![a] = -1]
    /\ answers' = {m \in answers : m.agent # a}
    /\ UNCHANGED <<live, founded, place, state, copies, handedOut, given>>

Next ==
    \/ Copy \/ LoseAllDisks \/ Found \/ Restore \/ RaiseFloor \/ Record
    \/ \E a \in Agents : Beat(a) \/ Allocate(a) \/ Claim(a) \/ Die(a) \/ \E m \in answers : Take(a, m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* With an operator who knows how far the IDs had gone.                     *)
NoIdTwice == OperatorKnows => \A id \in Ids : given[id] <= 1

(* Whatever operators do: agents that know of the quorum that runs share no *)
(* ID, neither at hand nor since they let go of any.                        *)
Disjoint ==
    \A a, b \in Agents : a # b /\ live # 0 /\ known[a] = live /\ known[b] = live
        => (reserve[a] \cup used[a]) \cap (reserve[b] \cup used[b]) = {}

(* Nothing is handed out below a floor that is in force.                    *)
F6 == live # 0 /\ ~Pending => state.next >= place[live].floor
A3 == \A a \in Agents : \A id \in reserve[a] : id <= highest[a]
=============================================================================
