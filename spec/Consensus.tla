------------------------------ MODULE Consensus ------------------------------
(***************************************************************************)
(* Raft as controller/raft ships it: elections, replication and commits,   *)
(* with members that lose their disks and recover (decision 0005), changes *)
(* of the quorum by one member at a time, learners (0009), snapshots and   *)
(* handovers.                                                              *)
(*                                                                         *)
(* Time is not modelled: what a timer could bring about may happen at any  *)
(* moment. So heartbeats as signs of life and check-quorum, which only     *)
(* keep members from what they may do, are left out.                       *)
(*                                                                         *)
(* The network keeps every message for ever and delivers any of them at    *)
(* any time: messages are lost, repeated, reordered and late. What a        *)
(* leader may send is told by what it has held in its term (`led`), so     *)
(* appends need not be kept one by one.                                    *)
(*                                                                         *)
(* A member's memory runs ahead of its disk. `Sync` makes it durable, and  *)
(* only then do the messages leave that rest on it (R11).                  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Members,        \* everybody who is ever a member
    FirstVoters,    \* the voters with which the quorum was founded
    Nobody,         \* no member
    Blank,          \* whether the voters, too, begin with empty disks
    Names,          \* whether leaders may name the voters: {TRUE}, and once
                    \*  everybody can read that: {TRUE, FALSE}
    MaxTerm, MaxLog, MaxProposals, MaxCrashes, MaxLosses, MaxChanges
                    \* bounds of the model, none of the protocol

VARIABLES
    term,           \* [Members -> Nat]: the newest term known (R1)
    vote,           \* [Members -> Members \cup {Nobody}]: the vote in it (R2)
    log,            \* [Members -> Seq(Entry)]
    commit,         \* [Members -> Nat]: known to be committed through here
    recovery,       \* [Members -> Nat]: the number of its recovery, 0: none
    role,           \* [Members -> {"follower", "candidate", "leader"}]
    following,      \* [Members -> Members \cup {Nobody}]: who leads the term
    verified,       \* [Members -> Nat]: agrees with that leader through here
    votes,          \* [Members -> [voter |-> answer]]: as a candidate
    progress,       \* [Members -> [Members -> what it knows as leader]]
    disk,           \* [Members -> what is durable]
    parked,         \* [Members -> the messages that rest on the disk]
    sent,           \* votes, requests for them and acknowledgements that left
    led,            \* [1..MaxTerm -> all that the term's leader has held, and
                    \*  told each member of commits and recoveries]
    decided,        \* history: [index -> committed entry, lowest term it was known in]
    drawn,          \* [Members -> Nat]: numbers drawn for recoveries
    pre,            \* [Members -> [voter |-> answer]]: would they vote for it
                    \*  in its next term; kept while it recovers
    used            \* how often each bounded event has happened

durables == <<term, vote, log, commit, recovery>>
roles == <<role, following, verified, votes, progress>>
vars == <<durables, roles, disk, parked, sent, led, decided, drawn, pre, used>>

-----------------------------------------------------------------------------
(* Entries, logs and configurations.                                       *)

NoConfig == [voters |-> {}, learners |-> {}]
Entry(t, kind, config) == [term |-> t, kind |-> kind, config |-> config]
Empty(t) == Entry(t, "empty", NoConfig)
Value(t) == Entry(t, "value", NoConfig)

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
MaxOf(S) == CHOOSE x \in S : \A y \in S : y <= x
Prefix(l, n) == SubSeq(l, 1, n)

TermAt(l, index) == IF index = 0 THEN 0 ELSE l[index].term
LastTerm(l) == TermAt(l, Len(l))
UpToDate(lastIndex, lastTerm, l) ==
    lastTerm > LastTerm(l) \/ (lastTerm = LastTerm(l) /\ lastIndex >= Len(l))

Founded == [voters |-> FirstVoters, learners |-> {}]
ConfigAt(l, index) == IF index = 0 THEN Founded ELSE l[index].config
MembersOf(config) == config.voters \cup config.learners

(* Where the configurations are that count: the last one known to be       *)
(* committed, and those behind it. At 0 is the one of the founding.         *)
ConfigIndexes(l, c) ==
    LET all == {0} \cup {n \in 1..Len(l) : l[n].kind = "voters"}
        base == MaxOf({n \in all : n <= c})
    IN {n \in all : n >= base}

NewestIndex(i) == MaxOf(ConfigIndexes(log[i], commit[i]))
Newest(i) == ConfigAt(log[i], NewestIndex(i))
Everybody(i) == UNION {MembersOf(ConfigAt(log[i], n)) : n \in ConfigIndexes(log[i], commit[i])}
MayCampaign(i, j) == \E n \in ConfigIndexes(log[i], commit[i]) : j \in ConfigAt(log[i], n).voters
IsMajority(some, voters) == 2 * Cardinality(some \cap voters) > Cardinality(voters)

(* Of a leader about another member. `counted`: acknowledged while it did  *)
(* not recover; `match`: agreed, which a loss takes back; `barrier`: the    *)
(* entry that ends its recovery.                                            *)
Unknown == [match |-> 0, counted |-> 0, recovery |-> 0, barrier |-> 0]
NoLeader == [leader |-> Nobody, log |-> <<>>, commit |-> 0,
             told |-> [j \in Members |-> 0], recovered |-> [j \in Members |-> {}]]

Image(i) == [term |-> term[i], vote |-> vote[i], log |-> log[i], commit |-> commit[i],
             recovering |-> recovery[i] # 0]

(* A term begins with an empty entry. Where the log does not say who the    *)
(* voters are yet, it begins with that; or the leader says so later, once   *)
(* all can read it (KIP-853). Nothing changes by it.                        *)
Named(i) == Entry(term[i], "voters", Newest(i))
First(i) == {IF names THEN Named(i) ELSE Empty(term[i]) : names \in IF NewestIndex(i) = 0 THEN Names ELSE {FALSE}}

Init ==
    /\ term = [i \in Members |-> 0]
    /\ vote = [i \in Members |-> Nobody]
    /\ log = [i \in Members |-> <<>>]
    /\ commit = [i \in Members |-> 0]
    /\ recovery = [i \in Members |-> IF Blank \/ i \notin FirstVoters THEN 1 ELSE 0]
    /\ role = [i \in Members |-> "follower"]
    /\ following = [i \in Members |-> Nobody]
    /\ verified = [i \in Members |-> 0]
    /\ votes = [i \in Members |-> <<>>]
    /\ progress = [i \in Members |-> [j \in Members |-> Unknown]]
    /\ disk = [i \in Members |-> Image(i)]
    /\ parked = [i \in Members |-> {}]
    /\ sent = {}
    /\ led = [t \in 1..MaxTerm |-> NoLeader]
    /\ decided = <<>>
    /\ drawn = recovery
    /\ pre = [i \in Members |-> <<>>]
    /\ used = [proposals |-> 0, crashes |-> 0, losses |-> 0, changes |-> 0]

Park(i, messages) == parked' = [parked EXCEPT ![i] = @ \cup messages]
Use(what, limit) == used[what] < limit /\ used' = [used EXCEPT ![what] = @ + 1]

-----------------------------------------------------------------------------
(* Terms, roles and disks.                                                  *)

(* Nothing of an earlier role, term or leader is kept.                      *)
Become(i, newRole, leader) ==
    /\ role' = [role EXCEPT ![i] = newRole]
    /\ following' = [following EXCEPT ![i] = leader]
    /\ verified' = [verified EXCEPT ![i] = 0]
    /\ votes' = [votes EXCEPT ![i] = <<>>]
    /\ progress' = [progress EXCEPT ![i] = [j \in Members |-> Unknown]]

EnterTerm(i, t) ==
    /\ term' = [term EXCEPT ![i] = t]
    /\ vote' = [vote EXCEPT ![i] = Nobody]
    /\ Become(i, "follower", Nobody)
    /\ pre' = [pre EXCEPT ![i] = <<>>]
    /\ UNCHANGED <<log, commit, recovery, disk, parked, sent, led, decided, drawn, used>>

(* A newer term is entered before anything else is done about a message.    *)
(* Whoever has entered it may have told of it, not its candidates alone.    *)
MeetTerm(i, t) ==
    /\ t > term[i]
    /\ (\E j \in Members : disk[j].term = t) \/ (\E m \in sent : m.term = t) \/ led[t].leader # Nobody
    /\ EnterTerm(i, t)

(* No timeout is needed to lose sight of a leader.                          *)
ForgetLeader(i) ==
    /\ following[i] # Nobody
    /\ Become(i, "follower", Nobody)
    /\ UNCHANGED <<durables, disk, parked, sent, led, decided, drawn, pre, used>>

(* A leader may give up at any time: as it does not hear a majority, or as  *)
(* it is no voter any more, and that is committed (R18).                    *)
StepDown(i) ==
    /\ role[i] = "leader"
    /\ Become(i, "follower", Nobody)
    /\ UNCHANGED <<durables, disk, parked, sent, led, decided, drawn, pre, used>>

(* Writes become durable in their order: with `image`, what was to be       *)
(* written before it. What rested on it leaves, but for what is of a term   *)
(* that has passed. Of acknowledgements that differ in how far they reach,  *)
(* the farthest is kept: a leader may commit less than it could.            *)
Synced(i) == disk[i] = Image(i) /\ parked[i] = {}

RestsOn(i, m, image) ==
    /\ m.term = image.term
    /\ m.type = "RequestVote" => image.vote = i
    /\ m.type = "Installed" => m.index <= Len(image.log)
    /\ m.type = "Vote" /\ (m.granted \/ m.consents) => image.vote = m.to
    /\ m.type \in {"Ack", "Vote"} /\ m.recovery = 0 => ~image.recovering
    /\ m.type = "Ack" /\ m.ok => m.match <= Len(image.log) /\ TermAt(image.log, m.match) = TermAt(log[i], m.match)

Same(one, other) ==
    /\ one.type = "Ack" /\ other.type = "Ack" /\ one.ok /\ other.ok
    /\ one.term = other.term /\ one.from = other.from /\ one.to = other.to /\ one.recovery = other.recovery
Farthest(messages) == {m \in messages : ~ \E n \in messages : Same(m, n) /\ n.match > m.match}

Flush(i, image) ==
    LET leaving == {m \in parked[i] : RestsOn(i, m, image)}
    IN /\ disk' = [disk EXCEPT ![i] = image]
       /\ sent' = Farthest(sent \cup {m \in leaving : m.term = term[i]})
       /\ parked' = [parked EXCEPT ![i] = {m \in @ \ leaving : m.term = term[i]}]
       /\ UNCHANGED <<durables, roles, led, decided, drawn, pre, used>>

(* All that is in memory. That an earlier image becomes durable while there *)
(* are later ones is no more than this, and then the member's next step.    *)
Sync(i) == ~ Synced(i) /\ Flush(i, Image(i))

(* Where no crash is left in the scope, a write that is late is no more     *)
(* than messages that are late.                                             *)
MayWait == used.crashes < MaxCrashes \/ used.losses < MaxLosses \/ \A i \in Members : Synced(i)

Restart(i, image) ==
    /\ term' = [term EXCEPT ![i] = image.term]
    /\ vote' = [vote EXCEPT ![i] = image.vote]
    /\ log' = [log EXCEPT ![i] = image.log]
    /\ commit' = [commit EXCEPT ![i] = image.commit]
    /\ recovery' = [recovery EXCEPT ![i] = IF image.recovering THEN drawn[i] + 1 ELSE 0]
    /\ drawn' = [drawn EXCEPT ![i] = IF image.recovering THEN @ + 1 ELSE @]
    /\ disk' = [disk EXCEPT ![i] = image]
    /\ parked' = [parked EXCEPT ![i] = {}]
    /\ Become(i, "follower", Nobody)
    /\ pre' = [pre EXCEPT ![i] = <<>>]
    /\ UNCHANGED <<sent, led, decided>>

(* What was not durable is lost. A member that recovers has a new number.   *)
(* The commit index is written when something else is.                      *)
Crash(i) ==
    /\ Use("crashes", MaxCrashes)
    /\ \E known \in 0..disk[i].commit : Restart(i, [disk[i] EXCEPT !.commit = known])

(* An empty disk, or one whose log has lost its tail, or cannot tell        *)
(* whether it has, as a write was torn. Fewer voters than a                 *)
(* majority may have lost data and not recovered, by every configuration    *)
(* that anybody counts by.                                                  *)
MayLose(i) ==
    \A j \in Members : \A n \in ConfigIndexes(log[j], commit[j]) :
        LET voters == ConfigAt(log[j], n).voters
        IN ~ IsMajority({k \in voters : disk[k].recovering} \cup ({i} \cap voters), voters)
           /\ 2 * Cardinality(({k \in voters : disk[k].recovering} \cup {i}) \cap voters) < Cardinality(voters)

LoseDisk(i) ==
    /\ Use("losses", MaxLosses)
    /\ MayLose(i)
    /\ Restart(i, [term |-> 0, vote |-> Nobody, log |-> <<>>, commit |-> 0, recovering |-> TRUE])

LoseTail(i) ==
    /\ Use("losses", MaxLosses)
    /\ MayLose(i)
    /\ \E n \in 0..Len(disk[i].log) :
           Restart(i, [disk[i] EXCEPT !.log = Prefix(@, n), !.commit = Min(@, n), !.recovering = TRUE])

-----------------------------------------------------------------------------
(* Elections.                                                               *)

(* Whose log is long enough for the vote of a member (paper, section 5.4.1).*)
(* A learner has committed nothing since it became one, so it asks for what *)
(* it held then. If it asked for nothing, some that were removed might      *)
(* elect who has not heard of that.                                         *)
Grantable(i, lastIndex, lastTerm) ==
    LET learns == i \in Newest(i).learners /\ ~ MayCampaign(i, i)
    IN UpToDate(lastIndex, lastTerm, IF learns THEN Prefix(log[i], NewestIndex(i)) ELSE log[i])

(* A member that recovers may have stood in a term, or led it, that it does *)
(* not know any more. So it stands only where a majority that forgot        *)
(* nothing, or everybody, has not entered its next term yet: those who      *)
(* voted for it there would do so again. For all others pre-votes are no    *)
(* matter of safety, and are left out. An answer to an earlier life of the  *)
(* member counts for nothing: it names another recovery.                    *)
AnswerPreVote(j, i, lastIndex, lastTerm, granted, consents) ==
    /\ i # j /\ recovery[i] # 0
    /\ term[j] <= term[i]
    /\ granted \/ consents
    /\ granted => Grantable(j, lastIndex, lastTerm)
    /\ consents => Grantable(j, lastIndex, lastTerm) \/ ~ MayCampaign(j, j)
    /\ pre' = [pre EXCEPT ![i] = [k \in DOMAIN @ \cup {j} |-> IF k # j THEN @[k] ELSE
                  [granted |-> granted, consents |-> consents, weak |-> recovery[j] # 0]]]
    /\ UNCHANGED <<durables, roles, disk, parked, sent, led, decided, drawn, used>>

PreWon(i) ==
    LET yes == {j \in DOMAIN pre[i] : IF MayCampaign(i, j) THEN pre[i][j].granted ELSE pre[i][j].consents}
    IN \/ IsMajority({j \in yes : ~ pre[i][j].weak}, Newest(i).voters)
       \/ Everybody(i) \subseteq yes \cup {i}

(* A timeout, or the word of a leader that hands over. The requests leave   *)
(* when the candidate's own vote and its log are durable.                   *)
Stand(i) ==
    /\ role[i] # "leader"
    /\ term[i] < MaxTerm
    /\ MayCampaign(i, i)
    /\ recovery[i] = 0 \/ PreWon(i)
    /\ term' = [term EXCEPT ![i] = @ + 1]
    /\ vote' = [vote EXCEPT ![i] = i]
    /\ Become(i, "candidate", Nobody)
    /\ pre' = [pre EXCEPT ![i] = <<>>]
    /\ Park(i, {[type |-> "RequestVote", term |-> term[i] + 1, from |-> i, to |-> j,
                 lastIndex |-> Len(log[i]), lastTerm |-> LastTerm(log[i])] : j \in Everybody(i) \ {i}})
    /\ UNCHANGED <<log, commit, recovery, disk, sent, led, decided, drawn, used>>

(* One vote a term, and none while a leader is known in it. A member        *)
(* answers as a voter and as a learner, for it may not know which of them   *)
(* the candidate takes it for. As a learner it agrees even with a log that  *)
(* ends before its own. It may always say no, as one does that may bear a   *)
(* removed voter's id.                                                      *)
Free(i, m) == vote[i] = m.from \/ (vote[i] = Nobody /\ following[i] = Nobody /\ role[i] # "leader")
MayGrant(i, m) == Free(i, m) /\ Grantable(i, m.lastIndex, m.lastTerm)
MayConsent(i, m) == IF MayCampaign(i, i) THEN MayGrant(i, m) ELSE Free(i, m)

AnswerVoteRequest(i, m, granted, consents) ==
    /\ m.type = "RequestVote" /\ m.to = i /\ m.term = term[i]
    /\ granted => MayGrant(i, m)
    /\ consents => MayConsent(i, m)
    /\ vote' = [vote EXCEPT ![i] = IF granted \/ consents THEN m.from ELSE @]
    /\ Park(i, {[type |-> "Vote", term |-> term[i], from |-> i, to |-> m.from,
                 granted |-> granted, consents |-> consents, recovery |-> recovery[i]]})
    /\ UNCHANGED <<term, log, commit, recovery, roles, disk, sent, led, decided, drawn, pre, used>>

(* A majority of votes of members that forgot nothing; or everybody's.      *)
Won(i, ballot) ==
    LET For(j) == IF MayCampaign(i, j) THEN ballot[j].granted ELSE ballot[j].consents
        yes == {j \in DOMAIN ballot : For(j)}
    IN \/ IsMajority({j \in yes : ballot[j].recovery = 0}, Newest(i).voters)
       \/ Everybody(i) \subseteq yes

(* Each vote counts once (R10). The winner appends the first entry of the   *)
(* term, which ends the recoveries of those who voted.                      *)
Count(i, j, answer) ==
    \E first \in First(i) :
    LET ballot == [k \in DOMAIN votes[i] \cup {j} |-> IF k = j THEN answer ELSE votes[i][k]]
        grown == Append(log[i], first)
        weak(k) == k \in DOMAIN ballot /\ k # i /\ ballot[k].recovery # 0
    IN IF Won(i, ballot)
       THEN /\ Len(grown) <= MaxLog
            /\ role' = [role EXCEPT ![i] = "leader"]
            /\ votes' = [votes EXCEPT ![i] = <<>>]
            /\ log' = [log EXCEPT ![i] = grown]
            /\ progress' = [progress EXCEPT ![i] = [k \in Members |->
                   IF weak(k) THEN [Unknown EXCEPT !.recovery = ballot[k].recovery, !.barrier = Len(grown)]
                   ELSE Unknown]]
            /\ Assert(led[term[i]].leader = Nobody, "R14: a term has two leaders")
            /\ led' = [led EXCEPT ![term[i]] = [NoLeader EXCEPT !.leader = i, !.log = grown, !.commit = commit[i]]]
       ELSE /\ votes' = [votes EXCEPT ![i] = ballot]
            /\ UNCHANGED <<role, log, progress, led>>

CountOwnVote(i) ==
    /\ role[i] = "candidate"
    /\ i \notin DOMAIN votes[i]
    /\ disk[i].term = term[i] /\ disk[i].vote = i
    /\ Count(i, i, [granted |-> TRUE, consents |-> TRUE, recovery |-> recovery[i]])
    /\ UNCHANGED <<term, vote, commit, recovery, following, verified, disk, parked, sent, decided, drawn, pre, used>>

CountVote(i, m) ==
    /\ m.type = "Vote" /\ m.to = i /\ m.term = term[i]
    /\ role[i] = "candidate"
    /\ i \in DOMAIN votes[i]
    /\ m.from \in Everybody(i) \ DOMAIN votes[i]
    /\ Count(i, m.from, [granted |-> m.granted, consents |-> m.consents, recovery |-> m.recovery])
    /\ UNCHANGED <<term, vote, commit, recovery, following, verified, disk, parked, sent, decided, drawn, pre, used>>

-----------------------------------------------------------------------------
(* Replication.                                                             *)

(* The leader's log grows; whatever is in it may be sent at once.           *)
Extend(i, entry) ==
    /\ role[i] = "leader"
    /\ Len(log[i]) < MaxLog
    /\ log' = [log EXCEPT ![i] = Append(@, entry)]
    /\ led' = [led EXCEPT ![term[i]].log = Append(@, entry)]

Propose(i) ==
    /\ Use("proposals", MaxProposals)
    /\ Extend(i, Value(term[i]))
    /\ UNCHANGED <<term, vote, commit, recovery, roles, disk, parked, sent, decided, drawn, pre>>

(* The member follows the leader of its term, from now on or still.         *)
Follow(i, leader) ==
    /\ role[i] # "leader"
    /\ IF following[i] = leader
       THEN UNCHANGED <<role, following, votes, progress>>
       ELSE /\ role' = [role EXCEPT ![i] = "follower"]
            /\ following' = [following EXCEPT ![i] = leader]
            /\ votes' = [votes EXCEPT ![i] = <<>>]
            /\ progress' = [progress EXCEPT ![i] = [j \in Members |-> Unknown]]

Ack(i, leader, ok, match, rejected) ==
    [type |-> "Ack", term |-> term[i], from |-> i, to |-> leader, ok |-> ok, match |-> match,
     rejected |-> rejected, recovery |-> recovery[i]]

(* The entries prev + 1 to last of the leader's log arrive, none of them in *)
(* a probe, and how far it had committed when it sent that. A refusal tells *)
(* the leader nothing but of a recovery, and of its end.                    *)
TakeAppend(i, prev, last, leaderCommit) ==
    LET of == led[term[i]]
        held == last <= Len(log[i]) /\ \A n \in (prev + 1)..last : log[i][n].term = of.log[n].term
        agreed == IF following[i] = of.leader THEN verified[i] ELSE 0
    IN /\ of.leader \notin {Nobody, i}
       /\ last <= Len(of.log) /\ leaderCommit <= of.commit
       /\ Follow(i, of.leader)
       /\ IF prev < commit[i]
          THEN /\ Park(i, {Ack(i, of.leader, TRUE, commit[i], 0)})
               /\ verified' = [verified EXCEPT ![i] = agreed]
               /\ UNCHANGED <<log, commit>>
          ELSE IF prev <= Len(log[i]) /\ TermAt(log[i], prev) = TermAt(of.log, prev)
          THEN /\ log' = [log EXCEPT ![i] = IF held THEN @ ELSE Prefix(of.log, last)]
               /\ Assert(Prefix(log'[i], prev) = Prefix(log[i], prev), "R3: entries that agree are cut off")
               /\ commit' = [commit EXCEPT ![i] = Max(@, Min(leaderCommit, last))]
               /\ verified' = [verified EXCEPT ![i] = Max(agreed, last)]
               /\ Park(i, {Ack(i, of.leader, TRUE, last, 0)})
          ELSE /\ Park(i, IF drawn[i] = 0 THEN {} ELSE {Ack(i, of.leader, FALSE, 0, prev)})
               /\ verified' = [verified EXCEPT ![i] = agreed]
               /\ UNCHANGED <<log, commit>>
       /\ UNCHANGED <<term, vote, recovery, disk, sent, led, decided, drawn, pre, used>>

(* A snapshot of the first `index` entries, all of them committed by the    *)
(* leader of term `t`, takes the log's place, unless the log holds the last *)
(* of them. By now another may lead.                                        *)
TakeSnapshot(i, t, index) ==
    LET of == led[t]
    IN /\ t <= term[i] /\ of.leader # Nobody /\ role[i] # "leader"
       /\ index \in (commit[i] + 1)..of.commit
       /\ IF index > Len(log[i]) THEN TRUE ELSE log[i][index].term # of.log[index].term
       /\ log' = [log EXCEPT ![i] = Prefix(of.log, index)]
       /\ commit' = [commit EXCEPT ![i] = index]
       /\ verified' = [verified EXCEPT ![i] = IF following[i] = Nobody THEN 0 ELSE Max(@, index)]
       /\ Park(i, IF following[i] = Nobody THEN {}
                  ELSE {[type |-> "Installed", term |-> term[i], from |-> i, to |-> following[i], index |-> index]})
       /\ UNCHANGED <<term, vote, recovery, role, following, votes, progress, disk, sent, led, decided, drawn, pre, used>>

(* What was installed may be sent on from, and no more: it may have been    *)
(* lost since.                                                              *)
TakeInstalled(i, m) ==
    /\ m.type = "Installed" /\ m.to = i /\ m.term = term[i]
    /\ role[i] = "leader"
    /\ m.from \in Everybody(i) \ {i}
    /\ m.index > progress[i][m.from].match
    /\ progress' = [progress EXCEPT ![i][m.from].match = m.index]
    /\ UNCHANGED <<durables, role, following, verified, votes, disk, parked, sent, led, decided, drawn, pre, used>>

(* Acknowledgements. One from a recovery that the leader has not heard of   *)
(* voids what it knew of the member, and a barrier is appended.             *)
TakeAck(i, m) ==
    LET known == progress[i][m.from]
        news == m.recovery # known.recovery
        fresh == IF ~news THEN known
                 ELSE IF m.recovery = 0 THEN [known EXCEPT !.recovery = 0, !.barrier = 0]
                 ELSE [known EXCEPT !.recovery = m.recovery, !.barrier = Len(log[i]) + 1, !.match = 0]
        after == IF m.ok
                 THEN [fresh EXCEPT !.match = Max(@, m.match),
                                    !.counted = IF m.recovery = 0 THEN Max(@, m.match) ELSE @]
                 ELSE IF m.recovery # 0 /\ m.rejected <= fresh.match THEN [fresh EXCEPT !.match = 0]
                 ELSE fresh
    IN /\ m.type = "Ack" /\ m.to = i /\ m.term = term[i]
       /\ role[i] = "leader"
       /\ m.from \in Everybody(i) \ {i}
       /\ Assert(m.match <= Len(log[i]), "R9: an acknowledgement beyond the log")
       /\ after # known
       /\ progress' = [progress EXCEPT ![i][m.from] = after]
       /\ IF news /\ m.recovery # 0
          THEN Extend(i, Empty(term[i]))
          ELSE UNCHANGED <<log, led>>
       /\ UNCHANGED <<term, vote, commit, recovery, role, following, verified, votes,
                      disk, parked, sent, decided, drawn, pre, used>>

(* What the leader itself holds durably.                                    *)
OwnMatch(i) == Len(disk[i].log)
OwnCounted(i) == IF recovery[i] = 0 /\ ~disk[i].recovering /\ disk[i].term = term[i] THEN Len(disk[i].log) ELSE 0

(* Majority rule and unanimous rule; entries of the own term alone (R7),    *)
(* and none before the configuration by which it is counted (R20).          *)
Committable(i, index) ==
    LET config == Newest(i)
        counted(j) == IF j = i THEN OwnCounted(i) ELSE progress[i][j].counted
        match(j) == IF j = i THEN OwnMatch(i) ELSE progress[i][j].match
        weak == \/ recovery[i] # 0 \/ disk[i].recovering \/ disk[i].term # term[i]
                \/ \E j \in Everybody(i) : progress[i][j].recovery # 0
    IN /\ index > commit[i] /\ index >= NewestIndex(i)
       /\ log[i][index].term = term[i]
       /\ \/ IsMajority({j \in config.voters : counted(j) >= index}, config.voters)
          \/ weak /\ \A j \in Everybody(i) : match(j) >= index

Decide(l, from, to, t) ==
    [n \in 1..Max(Len(decided), to) |->
        IF n <= Len(decided)
        THEN [decided[n] EXCEPT !.since = IF n > from /\ n <= to THEN Min(@, t) ELSE @]
        ELSE [entry |-> l[n], since |-> t]]

(* Nothing is kept about whoever is no member by now. If the entry ends the *)
(* recovery of such a member, it is told at once, or would never be.        *)
AdvanceCommit(i, index) ==
    /\ role[i] = "leader"
    /\ Committable(i, index)
    /\ commit' = [commit EXCEPT ![i] = index]
    /\ recovery' = [recovery EXCEPT ![i] = 0]
    /\ decided' = Decide(log[i], commit[i], index, term[i])
    /\ LET members == UNION {MembersOf(ConfigAt(log[i], n)) : n \in ConfigIndexes(log[i], index)}
           of(j) == progress[i][j]
           through(j) == Min(of(j).match, index)
           told == {j \in Members \ members : of(j).recovery # 0 /\ through(j) >= of(j).barrier}
       IN /\ progress' = [progress EXCEPT ![i] = [j \in Members |-> IF j \in members THEN @[j] ELSE Unknown]]
          /\ led' = [led EXCEPT
                ![term[i]].commit = index,
                ![term[i]].told = [j \in Members |-> IF j \in told THEN Max(@[j], through(j)) ELSE @[j]],
                ![term[i]].recovered = [j \in Members |-> IF j \in told THEN @[j] \cup {of(j).recovery} ELSE @[j]]]
    /\ UNCHANGED <<term, vote, log, role, following, verified, votes, disk, parked, sent, drawn, pre, used>>

(* A heartbeat says how much is committed of what its receiver is known to  *)
(* hold, and whether its recovery is over.                                  *)
SendHeartbeat(i, j) ==
    LET known == progress[i][j]
        through == Min(known.match, commit[i])
        over == IF known.recovery # 0 /\ through >= known.barrier THEN {known.recovery} ELSE {}
        told == led[term[i]].told[j]
    IN /\ role[i] = "leader" /\ j # i
       /\ through > told \/ ~ over \subseteq led[term[i]].recovered[j]
       /\ led' = [led EXCEPT ![term[i]].told[j] = Max(@, through), ![term[i]].recovered[j] = @ \cup over]
       /\ UNCHANGED <<durables, roles, disk, parked, sent, decided, drawn, pre, used>>

TakeHeartbeat(i, through, number) ==
    LET of == led[term[i]]
        limit == IF recovery[i] # 0
                 THEN Min(through, IF following[i] = of.leader THEN verified[i] ELSE 0) ELSE through
        ends == number # 0 /\ number = recovery[i]
    IN /\ of.leader \notin {Nobody, i}
       /\ Follow(i, of.leader)
       /\ Assert(limit <= Len(log[i]), "R4: told that more is committed than the log holds")
       /\ commit' = [commit EXCEPT ![i] = Max(@, limit)]
       /\ verified' = [verified EXCEPT ![i] = IF following[i] = of.leader THEN @ ELSE 0]
       /\ recovery' = [recovery EXCEPT ![i] = IF ends THEN 0 ELSE @]
       /\ vote' = [vote EXCEPT ![i] = IF ends /\ @ = Nobody THEN of.leader ELSE @]
       /\ UNCHANGED <<term, log, disk, parked, sent, led, decided, drawn, pre, used>>

-----------------------------------------------------------------------------
(* Changes of the quorum, one member at a time (dissertation, chapter 4).   *)

NextConfigs(config) ==
    {[config EXCEPT !.learners = @ \cup {j}] : j \in Members \ MembersOf(config)}
    \cup {[voters |-> config.voters \cup {j}, learners |-> config.learners \ {j}] : j \in config.learners}
    \cup {[voters |-> config.voters \ {j}, learners |-> config.learners \ {j}] : j \in MembersOf(config)}

(* A leader's log says from now on by whom it counts already. It needs none *)
(* of what makes changes wait.                                              *)
NameVoters(i) ==
    /\ FALSE \in Names
    /\ role[i] = "leader"
    /\ NewestIndex(i) = 0
    /\ Extend(i, Named(i))
    /\ UNCHANGED <<term, vote, commit, recovery, roles, disk, parked, sent, decided, drawn, pre, used>>

ChangeMembers(i, config) ==
    LET new == config.voters \ Newest(i).voters
    IN /\ Use("changes", MaxChanges)
       /\ role[i] = "leader"
       /\ config.voters # {}
       /\ Cardinality(ConfigIndexes(log[i], commit[i])) = 1     \* R15
       /\ TermAt(log[i], commit[i]) = term[i]
       /\ \A j \in new : progress[i][j].recovery = 0 /\ progress[i][j].counted >= NewestIndex(i)
       /\ config.voters # Newest(i).voters =>
              recovery[i] = 0 /\ \A j \in config.voters \ {i} : progress[i][j].recovery = 0
       /\ Extend(i, Entry(term[i], "voters", config))
       /\ UNCHANGED <<term, vote, commit, recovery, roles, disk, parked, sent, decided, drawn, pre>>

-----------------------------------------------------------------------------

(* Steps that lead nowhere else but to these are left out: whoever gives up *)
(* stands again, and whoever forgets a leader votes for another, or has to  *)
(* verify its log anew.                                                     *)
StepsDown(i) == term[i] < MaxTerm
Forgets(i) == vote[i] = Nobody \/ recovery[i] # 0

Step(i) ==
    \/ Crash(i) \/ LoseDisk(i) \/ LoseTail(i)
    \/ Stand(i) \/ CountOwnVote(i) \/ Propose(i)
    \/ StepsDown(i) /\ StepDown(i)
    \/ Forgets(i) /\ ForgetLeader(i)
    \/ \E j \in Members : /\ term[i] < MaxTerm /\ j \notin DOMAIN pre[i]
                         /\ LET yes == Grantable(j, Len(log[i]), LastTerm(log[i]))
                            IN AnswerPreVote(j, i, Len(log[i]), LastTerm(log[i]), yes, yes \/ ~ MayCampaign(j, j))
    \/ \E t \in 1..MaxTerm : MeetTerm(i, t)
    \/ \E index \in 1..Len(log[i]) : AdvanceCommit(i, index)
    \/ \E j \in Members : SendHeartbeat(i, j)
    \/ NameVoters(i)
    \/ \E config \in NextConfigs(Newest(i)) : ChangeMembers(i, config)
    \/ \E t \in 1..term[i] : \E index \in 1..led[t].commit : TakeSnapshot(i, t, index)
    \/ /\ term[i] > 0
       /\ LET of == led[term[i]] IN
          \/ \E prev \in 0..Len(of.log) : \E last \in {prev, Min(prev + 1, Len(of.log))} : \E c \in {0, of.commit} :
                TakeAppend(i, prev, last, c)
          \/ \E number \in of.recovered[i] \cup {0} : TakeHeartbeat(i, of.told[i], number)

(* A no is no more than no answer.                                          *)
Answer(i, m) ==
    /\ m.type = "RequestVote" /\ m.term = term[i]
    /\ MayConsent(i, m)
    /\ AnswerVoteRequest(i, m, MayGrant(i, m), TRUE)

Next ==
    \/ \E i \in Members : Sync(i)
    \/ MayWait /\ \E i \in Members : Step(i)
    \/ MayWait /\ \E m \in sent : Answer(m.to, m) \/ CountVote(m.to, m) \/ TakeAck(m.to, m)
                                   \/ TakeInstalled(m.to, m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What always holds (docs/invariants.md has the numbers).                  *)

(* R14, election safety, is asserted where a candidate wins.                *)

(* Leader completeness: who leads holds all that was known to be committed  *)
(* in an earlier term.                                                      *)
LeaderCompleteness ==
    \A t \in 1..MaxTerm : led[t].leader # Nobody =>
        \A n \in 1..Len(decided) : decided[n].since < t =>
            n <= Len(led[t].log) /\ led[t].log[n] = decided[n].entry

(* State machine safety: what anybody knows to be committed is the same.    *)
StateMachineSafety ==
    \A i \in Members : \A n \in 1..commit[i] :
        n <= Len(log[i]) /\ n <= Len(decided) /\ log[i][n] = decided[n].entry

(* Log matching: logs that agree in the term of an entry agree up to it.    *)
LogMatching ==
    \A i, j \in Members : \A n \in 1..Min(Len(log[i]), Len(log[j])) :
        log[i][n].term = log[j][n].term => Prefix(log[i], n) = Prefix(log[j], n)

(* Nothing that was acknowledged is lost: of every majority somebody who    *)
(* does not recover holds it durably, or all that can win do.               *)
R1 == \A i \in Members : LastTerm(log[i]) <= term[i] /\ \A n \in 2..Len(log[i]) : log[i][n - 1].term <= log[i][n].term
R4 == \A i \in Members : commit[i] <= Len(log[i])
R15 == \A i \in Members : role[i] = "leader" => Cardinality(ConfigIndexes(log[i], commit[i])) <= 2
R18 == \A i \in Members : role[i] = "leader" => MayCampaign(i, i) \/ NewestIndex(i) <= commit[i]
=============================================================================
