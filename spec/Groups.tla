-------------------------------- MODULE Groups --------------------------------
(***************************************************************************)
(* A consumer group and its offsets (decisions 0055 and 0056; KIP-447,      *)
(* KIP-345, KIP-890): coordinators that do not know of each other commit    *)
(* generations, and members read, write and commit their offsets in one     *)
(* transaction. Some of them are zombies.                                   *)
(*                                                                         *)
(* The quorum is one state here, as in Logs. One group, one partition of    *)
(* input. What was asked once may be decided at any time, again, or never;  *)
(* an answer is heard at once or never. Names of functions are Kafka's.     *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Coordinators,   \* agents, each of which may believe that it has the group
    Members,        \* processes, each with a transactional producer of its own
    Rules,          \* of the protocol that are in force: AllRules, or one less
    Inputs,         \* records of the partition: 0..Inputs - 1
    MaxGeneration,  \* bounds of the model: of generations,
    MaxVersion,     \* records of the group,
    MaxEpoch,       \* the highest epoch of a producer,
    MaxOffsets,     \* records of offsets, and
    MaxPlain        \* requests for such without a transaction

VARIABLES
    quorum,         \* replicated, see Nothing
    knows,          \* [Coordinators -> what it has in memory, see Unaware]
    session,        \* [Members -> what it was told, and how far it is, see Away]
    asked,          \* requests that were sent
    plain,          \* how many of them are plain commits
    consumed,       \* history: [inputs -> how many committed transactions have what came of it]
    latest,         \* history: the last record of offsets of which any was committed
    forked,         \* history: records of the group that did not follow the one before
    stale,          \* history: requests of no current member that moved an offset
    overlooked,     \* history: <<where a reader begins, a pending offset that it was not told of>>
    missed,         \* history: those of them that were committed after all
    past            \* what readers may be told that need not hear the newest

histories == <<latest, forked, stale, overlooked, missed, past>>
vars == <<quorum, knows, session, asked, plain, consumed, histories>>

AllRules == {"the generation fences", "a member of it", "compare and swap", "again by its coordinator",
             "stable reads", "confirmed reads", "in its transaction", "an epoch each", "the later commit wins"}
Keeps(rule) == rule \in Rules

Max(x, y) == IF x > y THEN x ELSE y

(* Records of offsets are numbered by `at`: which came later decides which  *)
(* of two offsets counts (G4).                                              *)
NoOffset == [offset |-> -1, at |-> 0]

(* `version`, `by`, `after`, `generation`, `members`: the newest record of  *)
(* the group (GroupRecord), and who had it committed. `committed`,          *)
(* `pending`: offsets, of transactions by their producers (OffsetsRecord).  *)
(* `inputs`: what a transaction has written the results of, from and up to. *)
NoTransaction == [epoch |-> 0, ongoing |-> FALSE, inputs |-> <<0, 0>>]
Nobody == "nobody"
Nothing ==
    [version |-> 0, by |-> Nobody, after |-> 0, generation |-> 0, members |-> {},
     committed |-> NoOffset, last |-> 0,
     pending |-> [m \in Members |-> NoOffset],
     transactions |-> [m \in Members |-> NoTransaction]]

(* A coordinator goes on from `version`. It waits for an answer to `asking`; *)
(* `mine`: the record of that version is its own. `heirs`: who may be        *)
(* assigned the partition; its owner has it.                                 *)
NoRequest == [type |-> "none"]
Unaware == [version |-> -1, generation |-> 0, members |-> {}, mine |-> FALSE, heirs |-> {}, owner |-> Nobody,
            asking |-> NoRequest]

(* A member has read from `position` up to `end`. `step`: away, joined,      *)
(* ready, asked, kept, ending.                                              *)
Away == [generation |-> 0, step |-> "away", position |-> 0, end |-> 0, epoch |-> 0]

Init ==
    /\ quorum = Nothing
    /\ knows = [c \in Coordinators |-> Unaware]
    /\ session = [m \in Members |-> Away]
    /\ asked = {} /\ plain = 0
    /\ consumed = [n \in 0..(Inputs - 1) |-> 0]
    /\ latest = 0 /\ forked = {} /\ stale = {} /\ overlooked = {} /\ missed = {} /\ past = {}

-----------------------------------------------------------------------------
(* What the replicated state says, and becomes.                             *)

(* A record of the group names the record that it replaces (G1), and the     *)
(* generation does not fall (G2).                                           *)
MayFollow(s, r) ==
    /\ Keeps("compare and swap") => r.after = s.version
    /\ r.generation >= s.generation

(* A coordinator that was not answered asks once more.                      *)
IsRepeated(s, r) ==
    /\ s.version > 0 /\ s.after = r.after /\ s.generation = r.generation /\ s.members = r.members
    /\ Keeps("again by its coordinator") => s.by = r.by

Advanced(s, r) ==
    [s EXCEPT !.version = @ + 1, !.by = r.by, !.after = r.after, !.generation = r.generation, !.members = r.members]

(* Who may commit (`validateOffsetCommit`): everybody while there are no     *)
(* members, and else those alone. A transaction that names nobody, as        *)
(* producers before KIP-447 did, is let pass and not fenced: left out.       *)
MayCommit(s, r) ==
    IF s.members = {} THEN r.generation = -1
    ELSE /\ Keeps("the generation fences") => r.generation = s.generation
         /\ Keeps("a member of it") => r.member \in s.members

(* The transaction is looked at before the group is.                        *)
IsOf(s, r) ==
    LET transaction == s.transactions[r.producer] IN
    Keeps("in its transaction") => transaction.ongoing /\ transaction.epoch = r.epoch

Kept(s, r) == [offset |-> r.offset, at |-> s.last + 1]

WithPlain(s, r) == [s EXCEPT !.last = @ + 1, !.committed = Kept(s, r)]
WithPending(s, r) == [s EXCEPT !.last = @ + 1, !.pending[r.producer] = Kept(s, r)]

(* The record that ends a transaction settles what it holds, and no marker   *)
(* is sent (`replayEndTransactionMarker`).                                  *)
Ended(s, p, epoch, isCommit) ==
    LET held == s.pending[p]
        counts == isCommit /\ held # NoOffset /\ (Keeps("the later commit wins") => held.at > s.committed.at)
    IN [s EXCEPT !.transactions[p] = [NoTransaction EXCEPT !.epoch = epoch], !.pending[p] = NoOffset,
                 !.committed = IF counts THEN held ELSE @]

(* With transaction.version 2 each end gives the next epoch (KIP-890).      *)
NextEpoch(epoch) == IF Keeps("an epoch each") THEN epoch + 1 ELSE epoch

Held(s) == {s.pending[m] : m \in Members} \ {NoOffset}
Shown(s) == [offset |-> s.committed.offset, held |-> Held(s)]

(* The quorum's next state; readers that need not hear the newest may hear   *)
(* what was.                                                                *)
Becomes(s) ==
    /\ quorum' = s
    /\ past' = IF Keeps("confirmed reads") THEN past ELSE past \cup {Shown(quorum)}

-----------------------------------------------------------------------------
(* Coordinators.                                                            *)

(* It knows nothing of the group: whoever is a member has to join again.     *)
Load(c) ==
    /\ knows[c] = Unaware
    /\ knows' = [knows EXCEPT ![c].version = quorum.version, ![c].generation = quorum.generation,
                              ![c].members = quorum.members]
    /\ UNCHANGED <<quorum, session, asked, plain, consumed, histories>>

Ask(r) == asked' = asked \cup {r}

Propose(c, generation, members, heirs) ==
    LET r == [type |-> "group", by |-> c, after |-> knows[c].version, generation |-> generation, members |-> members]
    IN /\ knows[c].version \in 0..(MaxVersion - 1) /\ knows[c].asking = NoRequest
       /\ Ask(r)
       /\ knows' = [knows EXCEPT ![c].asking = r, ![c].heirs = heirs, ![c].owner = Nobody, ![c].mine = FALSE]
       /\ UNCHANGED <<quorum, session, plain, consumed, histories>>

(* All who came together are a generation.                                  *)
Rebalance(c) ==
    /\ knows[c].generation < MaxGeneration
    /\ \E members \in SUBSET Members \ {{}} : Propose(c, knows[c].generation + 1, members, members)

(* A static member comes again under another id: the generation stays, and   *)
(* so does what was assigned (KIP-345).                                      *)
Replace(c) ==
    /\ knows[c].mine /\ knows[c].owner # Nobody
    /\ \E m \in Members \ knows[c].members :
        Propose(c, knows[c].generation, (knows[c].members \ {knows[c].owner}) \cup {m}, {m})

Granted(known, r, version) ==
    [known EXCEPT !.version = version, !.generation = r.generation, !.members = r.members, !.mine = TRUE,
                  !.asking = NoRequest]

(* CommitGroup. Whoever is refused forgets the group.                        *)
CommitGroup(r) ==
    LET repeated == IsRepeated(quorum, r)
        taken == ~repeated /\ MayFollow(quorum, r) /\ quorum.version < MaxVersion
        waits == knows[r.by].asking = r
        follows == r.after = quorum.version /\ r.generation >= quorum.generation
    IN /\ IF taken THEN Becomes(Advanced(quorum, r)) ELSE UNCHANGED <<quorum, past>>
       /\ forked' = IF taken /\ ~follows THEN forked \cup {r} ELSE forked
       /\ \/ taken /\ UNCHANGED knows
          \/ /\ waits
             /\ knows' = [knows EXCEPT ![r.by] = IF taken \/ repeated THEN Granted(@, r, quorum'.version) ELSE Unaware]
       /\ UNCHANGED <<session, asked, plain, consumed, latest, stale, overlooked, missed>>

(* JoinGroup and SyncGroup are answered: one member has the partition. The   *)
(* others hear nothing here, and go on as long as they like.                *)
Assign(c, m) ==
    /\ knows[c].mine /\ knows[c].owner = Nobody /\ m \in knows[c].heirs
    /\ knows' = [knows EXCEPT ![c].owner = m]
    /\ session' = [session EXCEPT ![m] = [Away EXCEPT !.generation = knows[c].generation, !.step = "joined"]]
    /\ UNCHANGED <<quorum, asked, plain, consumed, histories>>

-----------------------------------------------------------------------------
(* Members.                                                                 *)

Goes(m, step) == session' = [session EXCEPT ![m].step = step]

(* OffsetFetch. With `require_stable` no offset is told while a transaction  *)
(* holds another one (UNSTABLE_OFFSET_COMMIT), and it is asked for again.    *)
Fetch(m) ==
    /\ session[m].step = "joined"
    /\ \E shown \in past \cup {Shown(quorum)} :
        LET position == Max(shown.offset, 0) IN
        /\ Keeps("stable reads") => shown.held = {}
        /\ session' = [session EXCEPT ![m].step = "ready", ![m].position = position]
        /\ overlooked' = overlooked \cup {<<position, held>> : held \in shown.held}
    /\ UNCHANGED <<quorum, knows, asked, plain, consumed, latest, forked, stale, missed, past>>

(* Results are written: a batch joins a log, and its partition the           *)
(* transaction, which begins. The offsets behind what was read are committed *)
(* in it (TxnOffsetCommit).                                                 *)
Transform(m) ==
    LET transaction == quorum.transactions[m] IN
    /\ session[m].step = "ready" /\ ~transaction.ongoing
    /\ \E end \in (session[m].position + 1)..Inputs :
        /\ Becomes([quorum EXCEPT !.transactions[m] =
                    [epoch |-> transaction.epoch, ongoing |-> TRUE, inputs |-> <<session[m].position, end>>]])
        /\ Ask([type |-> "offsets", producer |-> m, epoch |-> transaction.epoch, member |-> m,
                generation |-> session[m].generation, offset |-> end])
        /\ session' = [session EXCEPT ![m].step = "asked", ![m].end = end, ![m].epoch = transaction.epoch]
    /\ UNCHANGED <<knows, plain, consumed, latest, forked, stale, overlooked, missed>>

IsCurrent(r) == r.generation = quorum.generation /\ r.member \in quorum.members
Moves(r) == stale' = IF IsCurrent(r) THEN stale ELSE stale \cup {r}

Hears(r) ==
    LET m == r.member
        waits == /\ session[m].step = "asked" /\ session[m].generation = r.generation
                 /\ session[m].epoch = r.epoch /\ session[m].end = r.offset
    IN waits /\ Goes(m, "kept")

CommitOffsets(r) ==
    /\ IsOf(quorum, r) /\ MayCommit(quorum, r) /\ quorum.last < MaxOffsets
    /\ Becomes(WithPending(quorum, r)) /\ Moves(r)
    /\ UNCHANGED session \/ Hears(r)
    /\ UNCHANGED <<knows, asked, plain, consumed, latest, forked, overlooked, missed>>

(* OffsetCommit, which a member sends at its own pace.                       *)
AskPlain(m) ==
    /\ plain < MaxPlain /\ session[m].step # "away"
    /\ \E offset \in 0..Inputs :
        Ask([type |-> "plain", member |-> m, generation |-> session[m].generation, offset |-> offset])
    /\ plain' = plain + 1
    /\ UNCHANGED <<quorum, knows, session, consumed, histories>>

CommitPlain(r) ==
    /\ MayCommit(quorum, r) /\ quorum.last < MaxOffsets
    /\ Becomes(WithPlain(quorum, r)) /\ Moves(r)
    /\ latest' = quorum.last + 1
    /\ UNCHANGED <<knows, session, asked, plain, consumed, forked, overlooked, missed>>

(* EndTxn. Only who was told that its offsets are kept commits.              *)
AskCommit(m) ==
    /\ session[m].step = "kept"
    /\ Ask([type |-> "end", producer |-> m, epoch |-> session[m].epoch])
    /\ Goes(m, "ending")
    /\ UNCHANGED <<quorum, knows, plain, consumed, histories>>

Commit(r) ==
    LET p == r.producer
        transaction == quorum.transactions[p]
        held == quorum.pending[p]
        mine == session[p].step = "ending" /\ session[p].epoch = r.epoch
    IN /\ transaction.ongoing /\ transaction.epoch = r.epoch /\ r.epoch < MaxEpoch
       /\ Becomes(Ended(quorum, p, NextEpoch(r.epoch), TRUE))
       /\ consumed' = [n \in DOMAIN consumed |->
                        consumed[n] + IF n >= transaction.inputs[1] /\ n < transaction.inputs[2] THEN 1 ELSE 0]
       /\ latest' = Max(latest, held.at)
       /\ missed' = missed \cup {one \in overlooked : one[2] = held}
       /\ \/ UNCHANGED session
          \/ mine /\ session' = [session EXCEPT ![p].step = "ready", ![p].position = session[p].end]
       /\ UNCHANGED <<knows, asked, plain, forked, stale, overlooked>>

Abort(p, epoch) ==
    /\ quorum.transactions[p].ongoing /\ epoch <= MaxEpoch
    /\ Becomes(Ended(quorum, p, epoch, FALSE))
    /\ UNCHANGED <<knows, asked, plain, consumed, latest, forked, stale, overlooked, missed>>

(* A member gives up, as it may while its offsets are on their way, or goes  *)
(* back to what is committed because somebody has ended its transaction.     *)
GiveUp(m) ==
    LET transaction == quorum.transactions[m] IN
    /\ session[m].step \in {"asked", "kept", "ending"}
    /\ IF transaction.ongoing THEN session[m].step # "ending" /\ Abort(m, NextEpoch(transaction.epoch))
       ELSE UNCHANGED <<quorum, knows, asked, plain, consumed, histories>>
    /\ Goes(m, "joined")

(* Its time is up: a transaction is aborted at the next epoch (KIP-588).     *)
TimeOut(p) == Abort(p, quorum.transactions[p].epoch + 1) /\ UNCHANGED session

Next ==
    \/ \E c \in Coordinators : Load(c) \/ Rebalance(c) \/ Replace(c) \/ \E m \in Members : Assign(c, m)
    \/ \E m \in Members : Fetch(m) \/ Transform(m) \/ AskPlain(m) \/ AskCommit(m) \/ GiveUp(m) \/ TimeOut(m)
    \/ \E r \in asked :
        CASE r.type = "group" -> CommitGroup(r)
          [] r.type = "offsets" -> CommitOffsets(r)
          [] r.type = "plain" -> CommitPlain(r)
          [] r.type = "end" -> Commit(r)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

(* Each input is in just one committed transaction, once the group is past   *)
(* it, and in none before. Not where offsets are committed by themselves.    *)
ExactlyOnce == \A n \in DOMAIN consumed : consumed[n] = IF n < quorum.committed.offset THEN 1 ELSE 0

(* G1, G2: each record of the group replaces the one before, and generations *)
(* do not fall.                                                             *)
OneAfterTheOther == forked = {}

(* Whoever is of another generation than the newest, or no member of it,     *)
(* moves no offset.                                                         *)
StaleMovesNothing == stale = {}

(* With `require_stable` nobody begins below an offset that was pending then *)
(* and is committed later.                                                  *)
StableReads == \A one \in missed : one[2].offset <= one[1]

(* G4: the committed offset is that of the latest record, whichever          *)
(* transaction ended last;                                                  *)
LatestCounts == quorum.committed.at = latest

(* and what is pending belongs to a transaction that is under way.          *)
NothingHangs == \A p \in Members : quorum.pending[p] # NoOffset => quorum.transactions[p].ongoing
=============================================================================
