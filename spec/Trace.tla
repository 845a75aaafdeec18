--------------------------------- MODULE Trace ---------------------------------
(***************************************************************************)
(* Is what the members of a simulated cluster did a behaviour of Consensus? *)
(* `Steps` is the course, one action after the other, each with its member  *)
(* and its arguments; at the end of each event, what the member then shows. *)
(* A course of which one step is none is not followed beyond that step.     *)
(*                                                                         *)
(* A disk writes later than the memory changes, so writes under way are     *)
(* kept here in their order. A crash may find the first of them durable, or *)
(* a part of one.                                                           *)
(*                                                                         *)
(* Two faults are no behaviour of Consensus: a member that makes up terms,  *)
(* and a disk that goes back without its noticing. They are steps here, and *)
(* what follows from them is held to all rules again.                       *)
(***************************************************************************)
EXTENDS Consensus, Course     \* Course has Steps, as the simulation wrote them

VARIABLES
    at,             \* the next step
    pending,        \* [Members -> images, oldest first]
    overwritten,    \* [Members -> logs of which a write took the end away]
    forged          \* the highest term that somebody has made up

TraceInit ==
    /\ Init
    /\ at = 1
    /\ pending = [i \in Members |-> <<>>]
    /\ overwritten = [i \in Members |-> {}]
    /\ forged = 0

-----------------------------------------------------------------------------

(* Before its first step a directory may know of a term, and no more.       *)
Begin(i, first) ==
    /\ log[i] = <<>> /\ term[i] = 0
    /\ term' = [term EXCEPT ![i] = first]
    /\ disk' = [disk EXCEPT ![i].term = first]
    /\ UNCHANGED <<vote, log, commit, recovery, roles, parked, sent, led, decided, drawn, pre, used>>

Images(i) == {disk[i]} \cup {pending[i][n] : n \in DOMAIN pending[i]}

Common(a, b) ==
    LET least == Min(Len(a), Len(b))
        apart == {n \in 1..least : a[n] # b[n]}
    IN IF apart = {} THEN least ELSE (CHOOSE n \in apart : \A m \in apart : n <= m) - 1

Ends(l, s) == s.len <= Len(l) /\ TermAt(l, s.len) = s.lastTerm

(* What was durable is there, with some of what was being written. A        *)
(* snapshot that was being installed may be there instead. Whoever cannot   *)
(* tell whether more was durable says that it was.                          *)
Kept(i, s, image) ==
    /\ \E from \in Images(i) : from.term = s.term /\ from.vote = s.vote /\ (from.recovering => s.recovering)
    /\ \/ \E from \in Images(i) :
            /\ Ends(from.log, s)
            /\ s.len >= Common(disk[i].log, from.log)
            /\ image.log = Prefix(from.log, s.len)
       \/ /\ s.installing = s.len
          /\ s.len <= Len(decided)
          /\ image.log = [n \in 1..s.len |-> decided[n].entry]

(* A new disk, or one that has lost the tail of its log and says so. If the *)
(* write is lost that took entries away, these are back.                    *)
Logs(i) == {from.log : from \in Images(i)} \cup overwritten[i]

Lost(i, s, image) ==
    /\ s.recovering
    /\ \E from \in Logs(i) : Ends(from, s) /\ image.log = Prefix(from, s.len)

Restarted(i, s) ==
    LET Image0(l) == [term |-> s.term, vote |-> s.vote, log |-> l, commit |-> s.commit, recovering |-> s.recovering]
        logs == {Prefix(from, s.len) : from \in {one \in Logs(i) : s.len <= Len(one)}}
                \cup (IF s.len <= Len(decided) THEN {[n \in 1..s.len |-> decided[n].entry]} ELSE {})
    IN /\ \E l \in logs : LET image == Image0(l) IN
             /\ TermAt(l, s.len) = s.lastTerm
             /\ IF s.lost THEN Lost(i, s, image) ELSE Kept(i, s, image)
             /\ Restart(i, image)
       /\ pending' = [pending EXCEPT ![i] = <<>>]
       /\ UNCHANGED used

(* The disk is as it was once. Its member cannot know what that lacks.      *)
WentBack(i, s) ==
    /\ \E from \in Logs(i) :
        /\ Ends(from, s)
        /\ Restart(i, [term |-> s.term, vote |-> s.vote, log |-> Prefix(from, s.len), commit |-> s.commit,
                       recovering |-> FALSE])
    /\ pending' = [pending EXCEPT ![i] = <<>>]
    /\ UNCHANGED used

(* Somebody who is no candidate asks for votes in a term of his own making, *)
(* or says something else in it. Whoever hears that, or somebody who has    *)
(* believed it, may come nearer if the term is too far away to be entered   *)
(* at once.                                                                 *)
Forge(s) ==
    /\ forged' = Max(forged, s.term)
    /\ sent' = sent \cup s.requests
    /\ UNCHANGED <<durables, roles, disk, parked, led, decided, drawn, pre, used>>

Believe(i, s) == term[i] < s.term /\ s.term <= forged /\ EnterTerm(i, s.term)

-----------------------------------------------------------------------------

Write(i) ==
    /\ pending' = [pending EXCEPT ![i] = Append(@, Image(i))]
    /\ UNCHANGED vars

Written(i) ==
    /\ pending[i] # <<>>
    /\ Flush(i, Head(pending[i]))
    /\ pending' = [pending EXCEPT ![i] = Tail(@)]

(* A snapshot is durable before it is in force.                             *)
Installed(i, s) ==
    LET image == [disk[i] EXCEPT !.log = log[i], !.commit = commit[i]]
    IN /\ log[i] # <<>> /\ Len(log[i]) = s.index
       /\ Flush(i, image)
       /\ pending' = [pending EXCEPT ![i] = [n \in DOMAIN @ |-> [@[n] EXCEPT !.log = log[i]]]]

(* Nothing is waiting to be written, yet something waits for what is.       *)
Rest(i) == Flush(i, disk[i]) /\ UNCHANGED pending

Consistent(i, s) ==
    LET sender == led[term[i]].log
    IN s.prev <= Len(sender) /\ TermAt(sender, s.prev) = s.prevTerm

(* Whether the log of a winner says who the voters are with its first entry. *)
Begins(i, s) == role'[i] = "leader" => (log'[i][Len(log'[i])].kind = "voters") = s.named

Does(i, s) ==
    \/ s.a = "Write" /\ Write(i)
    \/ s.a = "Written" /\ Written(i)
    \/ s.a = "Rest" /\ Rest(i)
    \/ s.a = "Installed" /\ Installed(i, s)
    \/ s.a = "Restart" /\ Restarted(i, s)
    \/ s.a = "WentBack" /\ WentBack(i, s)
    \/ /\ UNCHANGED pending
       /\ \/ s.a = "Begin" /\ Begin(i, s.term)
          \/ s.a = "Forge" /\ Forge(s)
          \/ s.a = "MeetTerm" /\ MeetTerm(i, s.term)
          \/ s.a = "Believe" /\ Believe(i, s)
          \/ s.a = "ForgetLeader" /\ ForgetLeader(i)
          \/ s.a = "StepDown" /\ StepDown(i)
          \/ s.a = "AnswerPreVote" /\ s.asked = term[s.to] + 1
                                   /\ AnswerPreVote(i, s.to, s.lastIndex, s.lastTerm, s.granted, s.consents)
          \/ s.a = "Stand" /\ s.term = term[i] + 1 /\ Stand(i)
          \/ s.a = "CountOwnVote" /\ CountOwnVote(i) /\ Begins(i, s)
          \/ s.a = "AnswerVoteRequest" /\ AnswerVoteRequest(i, s.m, s.granted, s.consents)  /\ s.m \in sent
          \/ s.a = "CountVote" /\ s.m \in sent /\ CountVote(i, s.m) /\ Begins(i, s)
          \/ s.a = "Propose" /\ Propose(i)
          \/ s.a = "TakeAppend" /\ Consistent(i, s) /\ TakeAppend(i, s.prev, s.last, s.commit)
          \/ s.a = "TakeSnapshot" /\ \E t \in 1..term[i] : TakeSnapshot(i, t, s.index)
          \/ s.a = "TakeAck" /\ s.m \in sent /\ TakeAck(i, s.m)
          \/ s.a = "TakeInstalled" /\ s.m \in sent /\ TakeInstalled(i, s.m)
          \/ s.a = "AdvanceCommit" /\ AdvanceCommit(i, s.index)
          \/ s.a = "SendHeartbeat" /\ SendHeartbeat(i, s.to)
          \/ s.a = "TakeHeartbeat" /\ s.through <= led[term[i]].told[i]
                                   /\ s.number \in led[term[i]].recovered[i] \cup {0}
                                   /\ TakeHeartbeat(i, s.through, s.number)
          \/ s.a = "NameVoters" /\ NameVoters(i)
          \/ s.a = "ChangeMembers" /\ ChangeMembers(i, [voters |-> s.voters, learners |-> s.learners])

Shows(i, s) ==
    s.x = <<>> \/ s.x = <<term'[i], vote'[i], Len(log'[i]), LastTerm(log'[i]), commit'[i], recovery'[i] # 0,
                          IF role'[i] = "leader" THEN i ELSE following'[i]>>

(* Messages that nobody takes, or takes again, are forgotten: they would    *)
(* fill the memory. This stands in the place of Farthest.                   *)
Uses == {Steps[n].m : n \in {k \in DOMAIN Steps : "m" \in DOMAIN Steps[k]}}
Wanted(messages) == {m \in messages : m.type = "RequestVote" \/ m \in Uses} \ Steps[at].drop

TraceNext ==
    /\ at <= Len(Steps)
    /\ LET s == Steps[at]
           before == disk[s.i].log
           taken == s.a = "Written" /\ Common(before, disk'[s.i].log) < Len(before)
       IN /\ Does(s.i, s) /\ Shows(s.i, s)
          /\ s.a = "Forge" \/ UNCHANGED forged
          /\ overwritten' = [overwritten EXCEPT ![s.i] = IF taken THEN @ \cup {before} ELSE @]
    /\ at' = at + 1

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at, pending, overwritten, forged>>

Place == at

(* What holds in every state of Consensus, where it costs little to look.   *)
Held ==
    at = 1 \/ LET i == Steps[at - 1].i IN
        /\ commit[i] <= Len(log[i]) /\ commit[i] <= Len(decided)
        /\ commit[i] = 0 \/ log[i][commit[i]] = decided[commit[i]].entry
        /\ LastTerm(log[i]) <= term[i]
=============================================================================
