------------------------------ MODULE GroupsTrace ------------------------------
(***************************************************************************)
(* Is what a quorum has decided about one group and one partition that it   *)
(* reads a behaviour of Groups? `Steps` is the course: the records of its   *)
(* log, as far as they are about these; with offsets, which members had     *)
(* asked for that. At the end of each entry stands what a member then has.  *)
(* A course of which one step is none is not followed beyond that step.     *)
(*                                                                         *)
(* Members and producers are names among Members here. Requests, answers    *)
(* and what was refused are in no record.                                   *)
(***************************************************************************)
EXTENDS Groups, Course

VARIABLES at

TraceInit == Init /\ at = 1

Keep == UNCHANGED <<knows, session, asked, plain, consumed, histories>>

Advances(s) ==
    LET r == [by |-> s.by, after |-> s.after, generation |-> s.generation, members |-> s.members]
    IN MayFollow(quorum, r) /\ quorum' = Advanced(quorum, r)

(* Of those who had asked for just this, one may.                            *)
CommitsPlain(s) ==
    /\ \E r \in s.by : MayCommit(quorum, r)
    /\ quorum' = WithPlain(quorum, s)

Holds(s) ==
    /\ IsOf(quorum, s)
    /\ \E r \in s.by : MayCommit(quorum, r)
    /\ quorum' = WithPending(quorum, s)

Transacts(s) ==
    quorum' = [quorum EXCEPT !.transactions[s.producer] = [NoTransaction EXCEPT !.epoch = s.epoch, !.ongoing = s.ongoing]]

EndedBy(s) ==
    /\ quorum.transactions[s.producer].ongoing
    /\ quorum' = Ended(quorum, s.producer, s.epoch, s.commit)

(* Deleted (KIP-496), or old (KIP-211): not what a transaction holds.         *)
Removes(s) ==
    /\ quorum.committed # NoOffset
    /\ quorum' = [quorum EXCEPT !.committed = NoOffset]

(* A group is forgotten without members and pending offsets alone (G6).      *)
Forgets(s) ==
    /\ quorum.members = {} /\ Held(quorum) = {}
    /\ quorum' = [Nothing EXCEPT !.transactions = quorum.transactions, !.last = quorum.last]

(* A topic is deleted, and takes pending offsets along (G3).                 *)
Drops(s) == quorum' = [quorum EXCEPT !.committed = NoOffset, !.pending = Nothing.pending]

Does(s) ==
    \/ s.a = "Advances" /\ Advances(s)
    \/ s.a = "CommitsPlain" /\ CommitsPlain(s)
    \/ s.a = "Holds" /\ Holds(s)
    \/ s.a = "Transacts" /\ Transacts(s)
    \/ s.a = "Ended" /\ EndedBy(s)
    \/ s.a = "Removes" /\ Removes(s)
    \/ s.a = "Forgets" /\ Forgets(s)
    \/ s.a = "Drops" /\ Drops(s)

Pending(s) == {<<p, s.pending[p].offset>> : p \in {m \in Members : s.pending[m] # NoOffset}}

Shows(s, x) == x = <<>> \/ x = <<s.generation, s.members, s.committed.offset, Pending(s)>>

TraceNext ==
    /\ at <= Len(Steps)
    /\ Does(Steps[at]) /\ Shows(quorum', Steps[at].x)
    /\ Keep
    /\ at' = at + 1

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at>>

Place == at
================================================================================
