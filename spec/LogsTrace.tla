------------------------------- MODULE LogsTrace -------------------------------
(***************************************************************************)
(* Is what a quorum has decided about one partition's log a behaviour of    *)
(* Logs? `Steps` is the course: the records of its log, as far as they are  *)
(* about this one, and what befell its objects in the store; at the end of  *)
(* each entry, what a member then has of the log. A course of which one     *)
(* step is none is not followed beyond that step.                           *)
(*                                                                         *)
(* Of an object only the batches are told that joined, so nothing is asked  *)
(* of the others. What is in an object is the simulator's matter.           *)
(***************************************************************************)
EXTENDS Logs, Course

VARIABLES at

TraceInit == Init /\ at = 1

Keep == UNCHANGED <<live, copy, session, made, flying, heard, offered, discarded, deleting, late, acknowledged, spared>>
Apart == UNCHANGED <<store, doomed>>
Becomes(s) == quorum' = s /\ Apart

Registered(s) == Becomes([quorum EXCEPT !.registered[s.broker] = s.epoch])

StoredNow(s) == store' = store \cup {[name |-> s.name]} /\ UNCHANGED <<quorum, doomed>>

(* Somebody asks the store to delete what no log has, nor will have.        *)
Doomed(s) ==
    /\ s.name \in quorum.named => s.name \in quorum.garbage
    /\ doomed' = doomed \cup {<<s.name, live>>}
    /\ UNCHANGED <<quorum, store>>

Gone(s) ==
    /\ <<s.name, live>> \in doomed
    /\ store' = store \ {[name |-> s.name]}
    /\ UNCHANGED <<quorum, doomed>>

IsStored(name) == [name |-> name] \in store /\ <<name, live>> \notin doomed

Committed(s) ==
    LET after == WithObject(quorum, s.o) IN
    /\ MayCommit(s.o) /\ ~Earlier(quorum.commits[s.o.name[2]], s.o)
    /\ s.o.items # <<>> => IsStored(s.o.name)
    /\ after.commits[s.o.name[2]].outcomes = s.outcomes
    /\ Becomes(after)

RolledTo(s) ==
    /\ MayCommit(s.o) /\ ~Earlier(quorum.rolls[s.o.name[2]], s.o)
    /\ IsStored(s.o.name)
    /\ Fits(quorum, s.o) = s.joined
    /\ Becomes(WithSegment(quorum, s.o))

(* Of another log, or of none: its number is taken.                         *)
RolledElsewhere(s) ==
    LET last == [epoch |-> s.o.name[3], number |-> s.o.name[4], outcomes |-> <<>>, joined |-> FALSE] IN
    /\ MayCommit(s.o) /\ ~Earlier(quorum.rolls[s.o.name[2]], s.o)
    /\ Becomes([quorum EXCEPT !.rolls[s.o.name[2]] = last])

Transacts(s) ==
    Becomes([quorum EXCEPT !.transactions[s.producer] = [epoch |-> s.epoch, ongoing |-> s.ongoing]])

EndedBy(s) ==
    /\ quorum.transactions[s.producer].ongoing
    /\ Becomes(Stable(Ended(quorum, s.producer, s.epoch, s.outcome)))

Started(s) ==
    /\ s.start > quorum.start /\ s.start <= Len(quorum.items)
    /\ Becomes(WithStart(quorum, s.start))

DeletedFrom(s) ==
    /\ s.names \subseteq quorum.garbage
    /\ \A name \in s.names : <<name, live>> \in doomed
    /\ Becomes(Without(quorum, s.names))

Expired(s) ==
    /\ quorum.producers[s.producer].epoch # -1 /\ quorum.producers[s.producer].open = -1
    /\ Becomes([quorum EXCEPT !.producers[s.producer] = Stranger])

Does(s) ==
    \/ s.a = "Registered" /\ Registered(s)
    \/ s.a = "Stored" /\ StoredNow(s)
    \/ s.a = "Doomed" /\ Doomed(s)
    \/ s.a = "Gone" /\ Gone(s)
    \/ s.a = "Committed" /\ Committed(s)
    \/ s.a = "Rolled" /\ RolledTo(s)
    \/ s.a = "RolledElsewhere" /\ RolledElsewhere(s)
    \/ s.a = "Transacts" /\ Transacts(s)
    \/ s.a = "Ended" /\ EndedBy(s)
    \/ s.a = "Started" /\ Started(s)
    \/ s.a = "Deleted" /\ DeletedFrom(s)
    \/ s.a = "Expired" /\ Expired(s)

Shows(s, x) ==
    x = <<>> \/ x = <<s.start, Len(s.items), LastStable(s), Len(s.parts) - Segments(s), Segments(s)>>

TraceNext ==
    /\ at <= Len(Steps)
    /\ Does(Steps[at]) /\ Shows(quorum', Steps[at].x)
    /\ Keep
    /\ at' = at + 1

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at>>

Place == at

(* What holds in every state of Logs, where it costs little to look.        *)
Held ==
    /\ DeletedForEver /\ StableOffset
    /\ \A name \in Names(quorum.parts) : [name |-> name] \in store
    /\ LET parts == quorum.parts IN
       /\ \A n \in 1..(Len(parts) - 1) : parts[n].end = parts[n + 1].base
       /\ parts # <<>> => parts[1].base <= Max(quorum.start, 0) /\ parts[Len(parts)].end = Len(quorum.items)
================================================================================
