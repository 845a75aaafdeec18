-------------------------------- MODULE Logs --------------------------------
(***************************************************************************)
(* Partition logs whose bytes are objects of a store (decisions 0047 and    *)
(* 0051): objects are put, and then committed; transactions end in a log;   *)
(* tails are rolled; what no log needs is deleted; disks are lost, and an   *)
(* older copy goes on beside a store that went on.                          *)
(*                                                                         *)
(* The quorum is one state here, as in Succession: how it is replicated is  *)
(* ReplicatedLog's matter. One topic with one partition. What was asked     *)
(* once may arrive at any time, again, or never; so may what was asked of   *)
(* the store.                                                               *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Agents,         \* processes; two of one broker: one of them is a zombie
    BrokerOf,       \* [Agents -> brokers]
    Plain,          \* producers without idempotence; their batches need not differ,
    Idempotent,     \* without transactions, and
    Transactional,  \* of which every batch belongs to a transaction
    Rules,          \* of the protocol that are in force: AllRules, or one less
    Pairs,          \* whether an object may have two batches
    Window,         \* batches of a producer of which duplicates are known
    MaxEpoch,       \* bounds of the model: of registrations,
    MaxFence,       \* the highest epoch of a producer,
    MaxObjects,     \* objects of batches, and
    MaxSegments,    \* segments that are put,
    MaxLate,        \* puts that take effect late, or once more,
    MaxDiscarded,   \* objects that their agents give up,
    MaxOffset,      \* offsets of a log,
    MaxStart,       \* the highest start of a log,
    MaxTopics,      \* topics that are created under the name, and
    MaxQuorums      \* quorums, each a restore of the copy but the first

VARIABLES
    live,           \* the founding whose directories run, 1..MaxQuorums
    quorum,         \* replicated, see Nothing
    copy,           \* of a disk: what the quorum was once, or NoCopy
    session,        \* [Agents -> what it knows of its registration]
    made,           \* history: objects that were ever put, each with its content
    flying,         \* puts that may still take effect
    heard,          \* objects whose agents know that they are stored
    offered,        \* objects that the quorum was asked to commit: the request may arrive at any time
    discarded,      \* objects that their agents will never offer
    store,          \* the objects that are in the store
    deleting,       \* deletions that may still take effect: <<name, live>>
    doomed,         \* history: deletions that were decided
    late,           \* history: how many puts were late
    acknowledged,   \* history: <<log, offset, batch>> that a producer was told
    spared          \* history: names that the lost quorum's log needed, and the copy does not know

vars == <<live, quorum, copy, session, made, flying, heard, offered, discarded, store, deleting, doomed, late,
          acknowledged, spared>>
storeVars == <<made, flying, heard, offered, discarded, store, deleting, doomed, late>>
pastVars == <<copy, spared, live>>

AllRules == {"put first", "founding in names", "numbers ascend", "refused takes its number", "compare and swap",
             "below the last stable offset", "committed first", "dead epochs alone", "held until released",
             "untold while hearing", "nothing while hearing", "aborted in the index",
             "agents stop before a restore"}
Keeps(rule) == rule \in Rules

Producers == Plain \cup Idempotent \cup Transactional
Brokers == {BrokerOf[a] : a \in Agents}
Max(x, y) == IF x > y THEN x ELSE y
MinOf(S) == CHOOSE n \in S : \A k \in S : n <= k
Range(s) == {s[n] : n \in DOMAIN s}

(* Batches, and what a log has at an offset: one record of a batch, or the  *)
(* marker of a transaction.                                                 *)
Batch(p, e, s, n) == [kind |-> "batch", producer |-> p, epoch |-> e, sequence |-> s, records |-> n]
Marker(p, e, outcome) == [kind |-> outcome, producer |-> p, epoch |-> e, sequence |-> -1, records |-> 1]
Each(b) == [n \in 1..b.records |-> [b EXCEPT !.sequence = @ + n - 1, !.records = 1]]

(* Names (decision 0047): founding, broker, broker epoch, number, kind.     *)
Name(founding, b, epoch, number, kind) ==
    <<IF Keeps("founding in names") THEN founding ELSE 0, b, epoch, number, kind>>
NoName == <<0, 0, 0, 0, "none">>

Stranger == [epoch |-> -1, kept |-> <<>>, open |-> -1]
NoCommit == [epoch |-> 0, number |-> 0, outcomes |-> <<>>, joined |-> FALSE]

(* The replicated state. `next`: the offset that the next registration      *)
(* gets. `named`: objects that are not deleted. `log`: its number. `items`: *)
(* history, what it ever had. `parts`: where each offset is read from,      *)
(* segments first. `stable`: history, the highest last stable offset.       *)
Nothing ==
    [founding |-> 1, collected |-> {1}, next |-> 1,
     registered |-> [b \in Brokers |-> 0], commits |-> [b \in Brokers |-> NoCommit],
     rolls |-> [b \in Brokers |-> NoCommit], named |-> {}, garbage |-> {},
     log |-> 1, start |-> 0, items |-> <<>>, parts |-> <<>>, aborted |-> {}, stable |-> 0,
     producers |-> [p \in Producers |-> Stranger],
     transactions |-> [p \in Producers |-> [epoch |-> 0, ongoing |-> FALSE]]]
NoCopy == [Nothing EXCEPT !.founding = 0]
NoSession == [epoch |-> 0, founding |-> 0, objects |-> 0, segments |-> 0, offered |-> -1]

Init ==
    /\ live = 1 /\ quorum = Nothing /\ copy = NoCopy
    /\ session = [a \in Agents |-> NoSession]
    /\ made = {} /\ flying = {} /\ heard = {} /\ offered = {} /\ discarded = {} /\ store = {}
    /\ deleting = {} /\ doomed = {} /\ late = 0
    /\ acknowledged = {} /\ spared = {}

-----------------------------------------------------------------------------
(* What the replicated state says.                                          *)

Names(parts) == {part.name : part \in Range(parts)} \ {NoName}
Open(s) == {s.producers[p].open : p \in Transactional} \ {-1}
LastStable(s) == Max(IF Open(s) = {} THEN Len(s.items) ELSE MinOf(Open(s)), s.start)
Segments(s) == Cardinality({n \in DOMAIN s.parts : s.parts[n].kind = "segment"})
TailStart(s) == IF Len(s.parts) = Segments(s) THEN Len(s.items) ELSE s.parts[Segments(s) + 1].base

(* The directories say a founding that the log does not know yet.           *)
Hearing == quorum.founding # live
Stands == Keeps("nothing while hearing") /\ Hearing

Stable(s) == [s EXCEPT !.stable = Max(@, LastStable(s))]

(* With other parts: what is in none any more is garbage.                   *)
WithParts(s, parts) == [s EXCEPT !.parts = parts, !.garbage = @ \cup (Names(s.parts) \ Names(parts))]

Appended(s, item, name, position) ==
    LET base == Len(s.items)
        part == [kind |-> IF item.kind = "batch" THEN "batch" ELSE "marker", base |-> base, end |-> base + item.records,
                 name |-> name, position |-> position, item |-> item]
    IN [s EXCEPT !.items = @ \o Each(item), !.parts = Append(@, part)]

Refused == -1

Expected(known, b) ==
    IF known.epoch = b.epoch /\ known.kept # <<>> THEN known.kept[Len(known.kept)][2] + 1 ELSE 0

(* One batch of an object: the state behind it, and its offset.             *)
Join(s, o, position) ==
    LET b == o.items[position]
        known == s.producers[b.producer]
        transaction == s.transactions[b.producer]
        last == b.sequence + b.records - 1
        same == {one \in Range(known.kept) : one[1] = b.sequence /\ one[2] = last}
        at == Len(s.items)
        now == <<b.sequence, last, at>>
        kept == IF known.epoch = b.epoch THEN Append(known.kept, now) ELSE <<now>>
        after == [epoch |-> b.epoch, kept |-> SubSeq(kept, Max(1, Len(kept) - Window + 1), Len(kept)),
                  open |-> IF b.producer \in Transactional /\ known.open = -1 THEN at ELSE known.open]
        refused == [state |-> s, at |-> Refused]
    IN IF o.log # s.log THEN refused
       ELSE IF b.producer \in Plain THEN [state |-> Appended(s, b, o.name, position), at |-> at]
       ELSE IF b.producer \in Transactional /\ (transaction.epoch # b.epoch \/ ~transaction.ongoing) THEN refused
       ELSE IF known.epoch = b.epoch /\ same # {} THEN [state |-> s, at |-> (CHOOSE one \in same : TRUE)[3]]
       ELSE IF known.epoch # -1 /\ (b.epoch < known.epoch \/ b.sequence # Expected(known, b)) THEN refused
       ELSE [state |-> [Appended(s, b, o.name, position) EXCEPT !.producers[b.producer] = after], at |-> at]

RECURSIVE JoinFrom(_, _, _)
JoinFrom(s, o, position) ==
    IF position > Len(o.items) THEN [state |-> s, outcomes |-> <<>>]
    ELSE LET one == Join(s, o, position)
             others == JoinFrom(one.state, o, position + 1)
         IN [state |-> others.state, outcomes |-> <<one.at>> \o others.outcomes]

-----------------------------------------------------------------------------
(* Agents and the quorum.                                                   *)

(* While the quorum hears, its log says the founding whose place it takes:  *)
(* epochs that are given now, that one may have given, too.                 *)
Told == IF Keeps("untold while hearing") /\ Hearing THEN 0 ELSE quorum.founding

Register(a) ==
    LET epoch == quorum.next IN
    /\ epoch <= MaxEpoch
    /\ quorum' = [quorum EXCEPT !.registered[BrokerOf[a]] = epoch, !.next = @ + 1]
    /\ session' = [session EXCEPT ![a] = [NoSession EXCEPT !.epoch = epoch, !.founding = Told]]
    /\ UNCHANGED <<storeVars, pastVars, acknowledged>>

IsRegistered(a) == session[a].epoch # 0 /\ session[a].epoch = quorum.registered[BrokerOf[a]]

(* A heartbeat of a registration that is in force tells of the founding.    *)
Hear(a) ==
    /\ IsRegistered(a) /\ Told \notin {0, session[a].founding}
    /\ session' = [session EXCEPT ![a].founding = Told]
    /\ UNCHANGED <<quorum, storeVars, pastVars, acknowledged>>

(* A name that has other bytes is refused, and they stay.                   *)
Landed(o) == IF \E other \in store : other.name = o.name THEN store ELSE store \cup {o}

(* Whoever hears nothing of a put does as if it were late, and gives up.    *)
Put(o) ==
    \E now, later \in BOOLEAN :
        /\ now \/ later
        /\ later => late < MaxLate
        /\ made' = made \cup {o}
        /\ store' = IF now THEN Landed(o) ELSE store
        /\ heard' = IF now /\ o \in store' THEN heard \cup {o} ELSE heard
        /\ flying' = IF later THEN flying \cup {o} ELSE flying
        /\ late' = IF later THEN late + 1 ELSE late

Land(o) ==
    /\ store' = Landed(o)
    /\ heard' = IF o \in store' THEN heard \cup {o} ELSE heard
    /\ flying' = flying \ {o}
    /\ UNCHANGED <<quorum, session, made, offered, discarded, deleting, doomed, late, pastVars, acknowledged>>

NameOf(a, kind) ==
    LET s == session[a] IN Name(s.founding, BrokerOf[a], s.epoch, IF kind = "batches" THEN s.objects ELSE s.segments, kind)

(* The next batch of a producer, or the last one again, of any epoch.       *)
Sent(p, e) == Cardinality({n \in DOMAIN quorum.items : quorum.items[n] = Batch(p, e, quorum.items[n].sequence, 1)})
Sendable == UNION {{Batch(p, e, s, 1) : s \in {Sent(p, e) - 1, Sent(p, e)} \ {-1}} :
                   p \in Producers, e \in 0..MaxFence}
Current == {b \in Sendable : b.epoch <= quorum.transactions[b.producer].epoch}
Behind(b) == {[b EXCEPT !.sequence = @ + 1]} \cup {c \in Current : c.producer # b.producer}
Contents == {<<b>> : b \in Current}
            \cup (IF Pairs THEN UNION {{<<b, c>> : c \in Behind(b)} : b \in Current} ELSE {})

PutObject(a) ==
    /\ session[a].founding # 0
    /\ Cardinality({o \in made : o.name[5] = "batches"}) < MaxObjects
    /\ \E items \in Contents :
        Put([name |-> NameOf(a, "batches"), log |-> quorum.log, base |-> -1, end |-> -1, replaces |-> 0,
             items |-> items, aborted |-> {}])
    /\ session' = [session EXCEPT ![a].objects = @ + 1]
    /\ UNCHANGED <<quorum, offered, discarded, deleting, doomed, pastVars, acknowledged>>

(* Its name is one of the registration that its agent believes in, above    *)
(* all that were offered.                                                   *)
IsCurrent(a, o) ==
    LET s == session[a] IN
    /\ o.name = Name(s.founding, BrokerOf[a], s.epoch, o.name[4], o.name[5])
    /\ o.name[5] = "batches" => o.name[4] > s.offered /\ o.name[4] < s.objects
    /\ o.name[5] = "segment" => o.name[4] = s.segments - 1

Offer(a, o) ==
    /\ Keeps("put first") => o \in heard
    /\ o \notin offered /\ o \notin discarded /\ IsCurrent(a, o)
    /\ offered' = offered \cup {o}
    /\ session' = IF o.name[5] = "batches" THEN [session EXCEPT ![a].offered = o.name[4]] ELSE session
    /\ UNCHANGED <<quorum, made, flying, heard, discarded, store, deleting, doomed, late, pastVars, acknowledged>>

Doom(names) ==
    /\ deleting' = deleting \cup {<<name, live>> : name \in names}
    /\ doomed' = doomed \cup {<<name, live>> : name \in names}

(* What was never offered is given up, or gets another name.                *)
Discard(o) ==
    /\ o \notin offered /\ o \notin discarded /\ Cardinality(discarded) < MaxDiscarded
    /\ discarded' = discarded \cup {o}
    /\ Doom({o.name})
    /\ UNCHANGED <<quorum, session, made, flying, heard, offered, store, late, pastVars, acknowledged>>

MayCommit(o) ==
    /\ ~Stands
    /\ quorum.registered[o.name[2]] = o.name[3]
    /\ o.name[1] = Name(quorum.founding, 0, 0, 0, "none")[1]

Earlier(last, o) ==
    /\ last.epoch = o.name[3]
    /\ IF Keeps("numbers ascend") THEN last.number >= o.name[4] ELSE last.number = o.name[4]

Answered(o, outcomes) ==
    {<<o.log, outcomes[n], o.items[n]>> : n \in {k \in DOMAIN outcomes : outcomes[k] # Refused}}

WithObject(s, o) ==
    LET joined == JoinFrom(s, o, 1)
        taken == joined.state.parts # s.parts
        commit == [epoch |-> o.name[3], number |-> o.name[4], outcomes |-> joined.outcomes, joined |-> taken]
    IN Stable([joined.state EXCEPT !.commits[o.name[2]] = commit, !.named = IF taken THEN @ \cup {o.name} ELSE @])

(* The first answer is lost. Who asks again is answered alike; it deletes    *)
(* what no log took.                                                        *)
CommitObject(o) ==
    LET last == quorum.commits[o.name[2]]
        after == WithObject(quorum, o)
    IN /\ MayCommit(o)
       /\ IF Earlier(last, o)
          THEN /\ last.number = o.name[4]
               /\ acknowledged' = acknowledged \cup Answered(o, last.outcomes)
               /\ IF last.joined \/ <<o.name, live>> \in doomed THEN UNCHANGED <<deleting, doomed>> ELSE Doom({o.name})
               /\ UNCHANGED quorum
          ELSE /\ Len(after.items) <= MaxOffset
               /\ IF after.commits[o.name[2]].joined \/ Keeps("refused takes its number")
                  THEN quorum' = after /\ UNCHANGED <<deleting, doomed>>
                  ELSE /\ Doom({o.name})
                       /\ UNCHANGED quorum
               /\ UNCHANGED acknowledged
       /\ UNCHANGED <<session, made, flying, heard, offered, discarded, store, late, pastVars>>

-----------------------------------------------------------------------------
(* Transactions and topics. What becomes of pairs is Transactions' matter.  *)

Ended(s, p, epoch, outcome) ==
    LET known == s.producers[p]
        at == Len(s.items)
        after == [epoch |-> epoch, kept |-> IF known.epoch = epoch THEN known.kept ELSE <<>>, open |-> -1]
        row == [producer |-> p, first |-> known.open, marker |-> at]
    IN IF known.open = -1 THEN s
       ELSE [Appended(s, Marker(p, epoch, outcome), NoName, 0) EXCEPT
                !.producers[p] = after, !.aborted = IF outcome = "abort" THEN @ \cup {row} ELSE @]

Transact(s) ==
    /\ Len(s.items) <= MaxOffset
    /\ quorum' = Stable(s)
    /\ UNCHANGED <<session, storeVars, pastVars, acknowledged>>

Begin(p) ==
    /\ ~quorum.transactions[p].ongoing
    /\ Transact([quorum EXCEPT !.transactions[p].ongoing = TRUE])

End(p, outcome) ==
    /\ quorum.transactions[p].ongoing
    /\ Transact([Ended(quorum, p, quorum.transactions[p].epoch, outcome) EXCEPT !.transactions[p].ongoing = FALSE])

(* A newer instance, or a transaction whose time is up.                     *)
Fence(p) ==
    LET epoch == quorum.transactions[p].epoch + 1 IN
    /\ epoch <= MaxFence
    /\ Transact([Ended(quorum, p, epoch, "abort") EXCEPT !.transactions[p] = [epoch |-> epoch, ongoing |-> FALSE]])

(* A topic is deleted, and one of its name created.                         *)
Recreate ==
    /\ quorum.log < MaxTopics
    /\ quorum' = [WithParts(quorum, <<>>) EXCEPT
            !.log = @ + 1, !.start = 0, !.items = <<>>, !.aborted = {}, !.stable = 0,
            !.producers = [p \in Producers |-> Stranger]]
    /\ acknowledged' = {}
    /\ UNCHANGED <<session, storeVars, pastVars>>

WithStart(s, start) ==
    LET kept == SelectSeq(s.parts, LAMBDA part : part.end > start)
        cut == [WithParts(s, kept) EXCEPT !.start = start]
    IN Stable([cut EXCEPT !.aborted = {row \in @ : row.marker >= Max(start, TailStart(cut))}])

(* Retention goes no further than the last stable offset, a client may.     *)
RaiseStart ==
    \E start \in (quorum.start + 1)..Len(quorum.items) :
        /\ start <= MaxStart
        /\ quorum' = WithStart(quorum, start)
        /\ UNCHANGED <<session, storeVars, pastVars, acknowledged>>

-----------------------------------------------------------------------------
(* Rolls.                                                                   *)

Stored(name) == {o \in store : o.name = name}
Object(name) == CHOOSE o \in store : o.name = name
Readable(part) ==
    part.kind = "marker" \/ (Stored(part.name) # {} /\ (part.kind = "segment" \/ part.position <= Len(Object(part.name).items)))
ItemsOf(part) ==
    IF part.kind = "marker" THEN <<part.item>>
    ELSE IF part.kind = "batch" THEN Each(Object(part.name).items[part.position])
    ELSE Object(part.name).items

RECURSIVE ReadAll(_, _, _)
ReadAll(parts, first, last) ==
    IF first > last THEN <<>> ELSE ItemsOf(parts[first]) \o ReadAll(parts, first + 1, last)

(* Which parts make up some offsets: all of the tail's beginning, and with  *)
(* it any number of the last segments. 0 if none do.                        *)
Covered(s, base, end) ==
    LET older == Segments(s)
        firsts == {i \in DOMAIN s.parts : s.parts[i].base = base /\ i <= older + 1}
        lasts == {j \in DOMAIN s.parts : s.parts[j].end = end /\ j >= older}
    IN IF firsts = {} \/ lasts = {} \/ (Keeps("below the last stable offset") /\ end > LastStable(s)) THEN 0
       ELSE Max(MinOf(lasts) - MinOf(firsts) + 1, 0)

Known(s, i, j) ==
    LET older == {n \in i..j : s.parts[n].kind = "segment"}
    IN s.aborted \cup (IF Keeps("aborted in the index") THEN UNION {Object(s.parts[n].name).aborted : n \in older} ELSE {})

PutSegment(a) ==
    /\ session[a].founding # 0
    /\ Cardinality({o \in made : o.name[5] = "segment"}) < MaxSegments
    /\ \E i \in DOMAIN quorum.parts : \E j \in i..Len(quorum.parts) :
        LET base == quorum.parts[i].base
            end == quorum.parts[j].end
        IN /\ Covered(quorum, base, end) = j - i + 1
           /\ j - i + 1 > 1 \/ quorum.parts[i].kind # "segment"
           /\ \A n \in i..j : Readable(quorum.parts[n])
           /\ Put([name |-> NameOf(a, "segment"), log |-> quorum.log, base |-> base, end |-> end,
                   replaces |-> j - i + 1, items |-> ReadAll(quorum.parts, i, j),
                   aborted |-> {row \in Known(quorum, i, j) : row.first < end /\ row.marker >= base}])
    /\ session' = [session EXCEPT ![a].segments = @ + 1]
    /\ UNCHANGED <<quorum, offered, discarded, deleting, doomed, pastVars, acknowledged>>

Rolled(s, o) ==
    LET part == [kind |-> "segment", base |-> o.base, end |-> o.end, name |-> o.name, position |-> 0,
                 item |-> Marker(CHOOSE p \in Producers : TRUE, 0, "none")]
        parts == SelectSeq(s.parts, LAMBDA one : one.end <= o.base) \o <<part>>
                 \o SelectSeq(s.parts, LAMBDA one : one.base >= o.end)
    IN [WithParts(s, parts) EXCEPT !.aborted = {row \in @ : row.marker >= o.end}]

Fits(s, o) == o.log = s.log /\ (Keeps("compare and swap") => Covered(s, o.base, o.end) = o.replaces)

WithSegment(s, o) ==
    LET after == IF Fits(s, o) THEN Rolled(s, o) ELSE [s EXCEPT !.garbage = @ \cup {o.name}]
        last == [epoch |-> o.name[3], number |-> o.name[4], outcomes |-> <<>>, joined |-> Fits(s, o)]
    IN Stable([after EXCEPT !.rolls[o.name[2]] = last, !.named = @ \cup {o.name}])

CommitSegment(o) ==
    /\ MayCommit(o) /\ ~Earlier(quorum.rolls[o.name[2]], o)
    /\ quorum' = WithSegment(quorum, o)
    /\ UNCHANGED <<session, storeVars, pastVars, acknowledged>>

-----------------------------------------------------------------------------
(* What is deleted.                                                         *)

Collects == ~Stands /\ (Keeps("held until released") => quorum.founding \in quorum.collected)

(* Of what is garbage for good an agent is told; it deletes that, and says  *)
(* so. Whoever counts what is offered as done deletes too early.            *)
Needless ==
    quorum.garbage
    \cup (IF Keeps("committed first") THEN {}
          ELSE UNION {{quorum.parts[n].name : n \in {k \in DOMAIN quorum.parts :
                        quorum.parts[k].base >= o.base /\ quorum.parts[k].end <= o.end}} \ {NoName} :
                      o \in {one \in offered : one.name[5] = "segment"}})

Collect(name) ==
    /\ Collects /\ name \in Needless /\ <<name, live>> \notin doomed
    /\ Doom({name})
    /\ UNCHANGED <<quorum, session, made, flying, heard, offered, discarded, store, late, pastVars, acknowledged>>

Delete(one) ==
    /\ deleting' = deleting \ {one}
    /\ store' = {o \in store : o.name # one[1]}
    /\ UNCHANGED <<quorum, session, made, flying, heard, offered, discarded, doomed, late, pastVars, acknowledged>>

Without(s, names) == [s EXCEPT !.garbage = @ \ names, !.named = @ \ names]

ConfirmDeleted(name) ==
    /\ name \in quorum.garbage /\ <<name, live>> \in doomed /\ <<name, live>> \notin deleting
    /\ quorum' = Without(quorum, {name})
    /\ UNCHANGED <<session, storeVars, pastVars, acknowledged>>

(* Nobody will ever commit an object of that name.                          *)
IsDead(name) ==
    \/ name[1] # Name(quorum.founding, 0, 0, 0, "none")[1]
    \/ name[3] < quorum.registered[name[2]]

Sweep(name) ==
    /\ Collects /\ (Keeps("held until released") /\ Keeps("founding in names") => name[1] \in quorum.collected)
    /\ name \notin quorum.named
    /\ Keeps("dead epochs alone") => IsDead(name)
    /\ <<name, live>> \notin deleting
    /\ Doom({name})
    /\ UNCHANGED <<quorum, session, made, flying, heard, offered, discarded, store, late, pastVars, acknowledged>>

-----------------------------------------------------------------------------
(* Disks, and operators.                                                    *)

Copy ==
    /\ live < MaxQuorums /\ copy = NoCopy /\ ~Hearing
    /\ copy' = quorum
    /\ UNCHANGED <<live, quorum, session, storeVars, acknowledged, spared>>

(* All disks are lost; what was acknowledged since the copy is undone.      *)
Restore ==
    /\ live < MaxQuorums /\ copy # NoCopy
    /\ live' = live + 1
    /\ quorum' = copy
    /\ spared' = Names(quorum.parts) \ copy.named
    /\ acknowledged' = {one \in acknowledged : one[1] = copy.log /\ one[2] < Len(copy.items)}
    /\ session' = IF Keeps("agents stop before a restore") THEN [a \in Agents |-> NoSession] ELSE session
    /\ UNCHANGED <<copy, storeVars>>

(* The end of the hearing: the SuccessionRecord.                            *)
Record ==
    /\ Hearing
    /\ quorum' = [quorum EXCEPT !.founding = live]
    /\ UNCHANGED <<session, storeVars, pastVars, acknowledged>>

Release ==
    /\ ~Hearing /\ quorum.founding \notin quorum.collected
    /\ quorum' = [quorum EXCEPT !.collected = 1..live]
    /\ spared' = {}
    /\ UNCHANGED <<copy, live, session, storeVars, acknowledged>>

Next ==
    \/ \E a \in Agents :
        \/ Register(a) \/ Hear(a) \/ PutObject(a) \/ PutSegment(a)
        \/ \E o \in made : Offer(a, o)
    \/ \E o \in flying : Land(o)
    \/ \E o \in made : Discard(o)
    \/ \E o \in offered : IF o.name[5] = "batches" THEN CommitObject(o) ELSE CommitSegment(o)
    \/ \E p \in Transactional : Begin(p) \/ Fence(p) \/ \E outcome \in {"commit", "abort"} : End(p, outcome)
    \/ Recreate \/ RaiseStart
    \/ \E name \in Needless : Collect(name)
    \/ \E one \in deleting : Delete(one)
    \/ \E name \in quorum.garbage : ConfirmDeleted(name)
    \/ \E o \in store : Sweep(o.name)
    \/ Copy \/ Restore \/ Record \/ Release

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

Offsets == quorum.start..(Len(quorum.items) - 1)
Holding(offset) == {n \in DOMAIN quorum.parts : quorum.parts[n].base <= offset /\ offset < quorum.parts[n].end}

(* L1: every offset from the start to the end is in one part, in order.     *)
Contiguous ==
    /\ \A offset \in Offsets : Cardinality(Holding(offset)) = 1
    /\ \A n \in 1..(Len(quorum.parts) - 1) : quorum.parts[n].end = quorum.parts[n + 1].base
    /\ quorum.parts # <<>> => quorum.parts[Len(quorum.parts)].end = Len(quorum.items)

(* L4: the sequences of a producer follow each other, so no batch is there  *)
(* twice.                                                                   *)
OnceEach ==
    \A n, k \in DOMAIN quorum.items :
        LET one == quorum.items[n]
            other == quorum.items[k]
        IN n < k /\ one.producer \notin Plain /\ one.kind = "batch" /\ other.kind = "batch" /\ one.producer = other.producer
                => one.epoch < other.epoch \/ (one.epoch = other.epoch /\ one.sequence < other.sequence)

(* What a producer was told is so.                                          *)
Acknowledged ==
    \A one \in acknowledged :
        one[1] = quorum.log => one[2] < Len(quorum.items) /\ quorum.items[one[2] + 1] = Each(one[3])[1]

(* A quorum whose place was taken may have deleted what a copy needs again. *)
Lost(name) == \E one \in doomed : one[1] = name /\ one[2] < live

(* What a log reads from is in the store, as it was appended.               *)
InTheStore ==
    \A part \in Range(quorum.parts) :
        \/ part.kind = "marker" \/ Lost(part.name)
        \/ Readable(part) /\ ItemsOf(part) = SubSeq(quorum.items, part.base + 1, part.end)

(* L5: what was deleted is in no log, nor comes to be.                      *)
DeletedForEver == \A name \in Names(quorum.parts) : <<name, live>> \notin doomed

NamesOnce == \A one, other \in made : one.name = other.name => one = other

(* L7: the last stable offset is in the log, and never falls.               *)
StableOffset == LastStable(quorum) <= Len(quorum.items) /\ LastStable(quorum) >= quorum.stable

(* T1: a transaction that a log waits for is under way.                     *)
NothingHangs == \A p \in Transactional : quorum.producers[p].open # -1 => quorum.transactions[p].ongoing

IsCommitted(offset) ==
    LET item == quorum.items[offset + 1]
        ends == {n \in (offset + 2)..Len(quorum.items) :
                    quorum.items[n].producer = item.producer /\ quorum.items[n].kind # "batch"}
    IN item.producer \notin Transactional \/ (ends # {} /\ quorum.items[MinOf(ends)].kind = "commit")

IsShown(part, offset) ==
    LET item == quorum.items[offset + 1]
        rows == IF part.kind = "segment" THEN Object(part.name).aborted ELSE quorum.aborted
    IN ~ \E row \in rows : row.producer = item.producer /\ row.first <= offset /\ offset < row.marker

(* Whoever reads committed records sees these, and no others.               *)
ReadCommitted ==
    \A offset \in quorum.start..(LastStable(quorum) - 1) :
        LET part == quorum.parts[CHOOSE n \in Holding(offset) : TRUE]
        IN quorum.items[offset + 1].kind = "batch" /\ Readable(part)
                => (IsShown(part, offset) <=> IsCommitted(offset))

(* What may be all that is left of the newest records stays until an        *)
(* operator has released it.                                                *)
HeldUntilReleased == \A name \in spared : <<name, live>> \notin doomed

(* What the quorum's books have is needed, or garbage.                      *)
NothingForgotten == quorum.named = Names(quorum.parts) \cup quorum.garbage

(* What is needless does not stay: if puts take effect, and agents collect  *)
(* and sweep, the store has at last what logs need, and what the agent of   *)
(* a living epoch may commit.                                               *)
LivelySpec ==
    /\ Spec
    /\ WF_vars(\E o \in flying : Land(o)) /\ WF_vars(\E one \in deleting : Delete(one))
    /\ WF_vars(\E name \in Needless : Collect(name)) /\ WF_vars(\E o \in store : Sweep(o.name))
    /\ WF_vars(\E name \in quorum.garbage : ConfirmDeleted(name))

Cleaned ==
    <>[](Collects => \A o \in store : o.name \in Names(quorum.parts) \/ (o.name \notin quorum.named /\ ~IsDead(o.name)))
=============================================================================
