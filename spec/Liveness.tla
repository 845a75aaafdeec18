------------------------------- MODULE Liveness -------------------------------
(***************************************************************************)
(* Something happens: members who can talk, a majority that forgot nothing  *)
(* or everybody, elect a leader, who serves; and recoveries end.            *)
(*                                                                         *)
(* Anything may happen at first. From some moment on it is calm: nothing    *)
(* more is lost, a timeout is longer than all that can be done before it    *)
(* (Raft paper, section 5.6), and of those who are up one alone stands for  *)
(* election then, if nobody leads. Randomised timeouts bring that about in  *)
(* the end. Heartbeats repeat what was lost, so what can be sent is sent.   *)
(*                                                                         *)
(* Only what changes something is a step here. So one fairness is enough:   *)
(* as long as a step is possible, some step is taken.                       *)
(***************************************************************************)
EXTENDS Consensus

CONSTANT Up         \* who is up, and can talk, once it is calm

VARIABLE calm

lively == <<vars, calm>>

(* The calm has a term of its own, and room in the log for what it needs:   *)
(* a leader's first entry, and a barrier for everybody who recovers.        *)
Room == 1 + MaxLosses + (IF Blank THEN Cardinality(FirstVoters) ELSE 0)

Chaos ==
    /\ ~ calm
    /\ Next
    /\ \A i \in Members : term'[i] < MaxTerm /\ Len(log'[i]) + Room <= MaxLog
    /\ UNCHANGED calm

CalmDown == ~ calm /\ calm' = TRUE /\ UNCHANGED vars

Leads(i) == role[i] = "leader" /\ \A j \in Up : term[j] <= term[i]

MayWin(i) ==
    /\ MayCampaign(i, i)
    /\ \A j \in Up : /\ term[j] <= term[i] /\ ~ Leads(j)
                     /\ UpToDate(Len(log[i]), LastTerm(log[i]), log[j])

MayStand(i) == (\E j \in Up : MayWin(j)) /\ i = CHOOSE j \in Up : MayWin(j)

(* A leader finds out where the logs part, and sends all that is behind it. *)
(* A member that recovers says so with its first refusal.                   *)
Agreed(i, of) == MaxOf({n \in 0..Min(Len(log[i]), Len(of.log)) : TermAt(log[i], n) = TermAt(of.log, n)})

HearLeader(i) ==
    LET of == led[term[i]]
    IN /\ term[i] > 0 /\ of.leader \in Up
       /\ \/ TakeAppend(i, Agreed(i, of), Len(of.log), of.commit)
          \/ TakeAppend(i, Len(of.log), Len(of.log), of.commit)
          \/ \E number \in of.recovered[i] \cup {0} : TakeHeartbeat(i, of.told[i], number)

AskWhetherToStand(i, j) ==
    LET yes == Grantable(j, Len(log[i]), LastTerm(log[i]))
    IN /\ term[i] < MaxTerm /\ j \notin DOMAIN pre[i]
       /\ AnswerPreVote(j, i, Len(log[i]), LastTerm(log[i]), yes, yes \/ ~ MayCampaign(j, j))

(* No link repeats for ever what its sender has said something newer after: *)
(* that it has recovered, or holds what it had refused.                     *)
Current(i, m) ==
    /\ m.type = "Ack" /\ m.recovery = recovery[m.from]
    /\ (m.ok \/ m.recovery # progress[i][m.from].recovery)

Does(i) ==
    \/ Sync(i) \/ CountOwnVote(i) \/ HearLeader(i)
    \/ \E j \in Up : MeetTerm(i, term[j])
    \/ \E index \in 1..Len(log[i]) : AdvanceCommit(i, index)
    \/ \E j \in Up : SendHeartbeat(i, j)
    \/ \E m \in sent : /\ m.to = i /\ m.from \in Up
                      /\ (Answer(i, m) \/ CountVote(i, m) \/ (Current(i, m) /\ TakeAck(i, m)))

Changes ==
    \/ <<durables, roles, disk, sent, led, pre>>' # <<durables, roles, disk, sent, led, pre>>
    \/ \E i \in Up : ~ parked'[i] \subseteq parked[i] \cup sent

Goes == (\E i \in Up : Does(i)) /\ Changes

TimesOut(i) == MayStand(i) /\ (Stand(i) \/ \E j \in Up : AskWhetherToStand(i, j))

Calm ==
    /\ calm
    /\ (Goes \/ (~ ENABLED Goes /\ \E i \in Up : TimesOut(i)))
    /\ UNCHANGED calm

LivelySpec == /\ Init /\ calm = FALSE
              /\ [][Chaos \/ CalmDown \/ Calm]_lively
              /\ WF_lively(CalmDown \/ Calm)

-----------------------------------------------------------------------------

(* A leader of the newest term has committed an entry of its own.           *)
Serves == <>[](\E i \in Up : Leads(i) /\ TermAt(log[i], commit[i]) = term[i])

(* Everybody who is up knows that, and that it has recovered.               *)
Recovers == <>[](\A i \in Up : recovery[i] = 0 /\ TermAt(log[i], commit[i]) = term[i])
=============================================================================
