------------------------------ MODULE Migration ------------------------------
(***************************************************************************)
(* The quorum beside ZooKeeper's brokers: a block is claimed in ZooKeeper   *)
(* and then committed (decision 0012), a claim carries the name of its      *)
(* quorum (0013), and the migration ends with a seal (0014) or a rollback.  *)
(*                                                                         *)
(* ZooKeeper is one register with a version. A write replaces the version   *)
(* that was read before it; it may be carried out long after whoever sent   *)
(* it has died, and its acknowledgement may never come.                     *)
(***************************************************************************)
EXTENDS ReplicatedLog

CONSTANTS
    OldBrokers,     \* brokers that take blocks from ZooKeeper by themselves
    Highest,        \* the highest ID; one that ends there is the seal
    MaxBlocks,      \* bounds of the model
    MaxWrites,
    MaxOrders

VARIABLES
    znode,          \* [version, last, first, by]: the block in it; `last` -1: none
    writes,         \* under way: [who, version, block]
    acknowledged,   \* writes that were carried out and not heard of yet
    reads,          \* [OldBrokers -> what it read, or NoRead]
    work,           \* [Controllers -> what it does with ZooKeeper]
    taken,          \* history: [ID -> who was given it] of brokers
    sealedFor,      \* history: whether the seal was ever carried out
    used

migrationVars == <<znode, writes, acknowledged, reads, work, taken, sealedFor, used>>
vars == <<logVars, migrationVars>>

Quorum == "quorum"
NoBlock == [first |-> 0, last |-> -1, by |-> "nobody"]
NoRead == [version |-> -1, block |-> NoBlock]
Idle == [stage |-> "idle"]
IDs == 0..Highest
Seal == [first |-> Highest, last |-> Highest, by |-> Quorum]
Max(a, b) == IF a > b THEN a ELSE b
MaxOf(S) == CHOOSE x \in S : \A y \in S : y <= x

(* Blocks are of one ID each: what matters is who is given which.           *)
NextId(l) == MaxOf({0} \cup {l[n].last + 1 : n \in {k \in 1..Len(l) : l[k].type = "block"}}
                       \cup {l[n].next : n \in {k \in 1..Len(l) : l[k].type = "zookeeper"}})
PhaseIndex(l) == MaxOf({0} \cup {n \in 1..Len(l) : l[n].type = "phase"})
PhaseOf(l) == IF PhaseIndex(l) = 0 THEN "bridge" ELSE l[PhaseIndex(l)].phase
Applied(c) == SubSeq(committed, 1, applied[c])
Phase(c) == PhaseOf(Applied(c))

NextPhases(phase) ==
    CASE phase = "bridge" -> {"import"}
      [] phase = "import" -> {"dual write", "rolling back"}
      [] phase = "dual write" -> {"finalizing", "rolling back"}
      [] phase = "finalizing" -> {"finalizing", "finalized", "rolling back"}
      [] phase = "rolling back" -> {"rolling back", "rolled back"}
      [] phase = "rolled back" -> {"import"}
      [] OTHER -> {}

(* The lowest ID that nobody was given and that nobody will be unless the   *)
(* znode is written again. What stands in a claim of this quorum, from its  *)
(* next ID on, was given to nobody.                                         *)
NextFree(block, next) ==
    IF block.last = -1 THEN next
    ELSE IF block.by # Quorum THEN Max(next, block.last + 1)
    ELSE IF block = Seal THEN next
    ELSE Max(next, block.first)

Init ==
    /\ LogInit
    /\ znode = [version |-> 0, block |-> NoBlock]
    /\ writes = {} /\ acknowledged = {}
    /\ reads = [b \in OldBrokers |-> NoRead]
    /\ work = [c \in Controllers |-> Idle]
    /\ taken = [id \in IDs |-> {}]
    /\ sealedFor = FALSE
    /\ used = [writes |-> 0, orders |-> 0]

Write(w) ==
    /\ used.writes < MaxWrites
    /\ used' = [used EXCEPT !.writes = @ + 1]
    /\ writes' = writes \cup {w}

(* A write is carried out, or meets another version and fails.              *)
Carry(w) ==
    /\ writes' = writes \ {w}
    /\ IF znode.version = w.version
       THEN /\ znode' = [version |-> w.version + 1, block |-> w.block]
            /\ acknowledged' = acknowledged \cup {w}
            /\ sealedFor' = (sealedFor \/ w.block = Seal)
       ELSE UNCHANGED <<znode, acknowledged, sealedFor>>
    /\ UNCHANGED <<logVars, reads, work, taken, used>>

-----------------------------------------------------------------------------
(* Brokers of ZooKeeper: KIP-730's loop. They know nothing of names.        *)

BrokerReads(b) ==
    /\ reads' = [reads EXCEPT ![b] = znode]
    /\ reads[b] # znode
    /\ UNCHANGED <<logVars, znode, writes, acknowledged, work, taken, sealedFor, used>>

BrokerWrites(b) ==
    LET next == reads[b].block.last + 1
    IN /\ reads[b].version >= 0
       /\ next <= Highest                  \* else "Have exhausted all producerIds"
       /\ next < Highest                   \* the model's own blocks end below the seal
       /\ Write([who |-> b, version |-> reads[b].version, block |-> [first |-> next, last |-> next, by |-> b]])
       /\ reads' = [reads EXCEPT ![b] = NoRead]
       /\ UNCHANGED <<logVars, znode, acknowledged, work, taken, sealedFor>>

BrokerHears(b, w) ==
    /\ w.who = b
    /\ acknowledged' = acknowledged \ {w}
    /\ taken' = [taken EXCEPT ![w.block.last] = @ \cup {<<b, w.version>>}]
    /\ UNCHANGED <<logVars, znode, writes, reads, work, sealedFor, used>>

-----------------------------------------------------------------------------
(* The leader claims a block, and has it committed when that is             *)
(* acknowledged.                                                            *)

ReadForClaim(c) ==
    /\ MayDecide(c) /\ work[c] = Idle
    /\ Phase(c) \in {"bridge", "dual write"}
    /\ work' = [work EXCEPT ![c] = [stage |-> "claim", read |-> znode, since |-> PhaseIndex(Applied(c))]]
    /\ UNCHANGED <<logVars, znode, writes, acknowledged, reads, taken, sealedFor, used>>

SamePhase(c) == work[c].since = PhaseIndex(Applied(c))

Claimed(c, first) == [stage |-> "claimed", first |-> first, since |-> work[c].since]

WriteClaim(c) ==
    LET block == work[c].read.block
        first == NextFree(block, NextId(Applied(c)))
        held == IF block.by # Quorum THEN first ELSE Max(first, block.last + 1)
        w == [who |-> c, version |-> work[c].read.version, block |-> [first |-> first, last |-> first, by |-> Quorum]]
    IN /\ MayDecide(c) /\ work[c].stage = "claim" /\ SamePhase(c)
       /\ block # Seal
       /\ first < Highest
       /\ IF first + 1 <= held
          THEN /\ work' = [work EXCEPT ![c] = Claimed(c, first)]
               /\ UNCHANGED <<writes, used>>
          ELSE /\ Write(w)
               /\ work' = [work EXCEPT ![c] = [stage |-> "claiming", write |-> w, since |-> work[c].since]]
       /\ UNCHANGED <<logVars, znode, acknowledged, reads, taken, sealedFor>>

HearClaim(c) ==
    /\ work[c].stage = "claiming"
    /\ work[c].write \in acknowledged
    /\ acknowledged' = acknowledged \ {work[c].write}
    /\ work' = [work EXCEPT ![c] = IF SamePhase(c) THEN Claimed(c, work[c].write.block.first) ELSE Idle]
    /\ UNCHANGED <<logVars, znode, writes, reads, taken, sealedFor, used>>

(* Any other outcome counts for nothing.                                    *)
GiveUp(c) ==
    /\ work[c] # Idle
    /\ work' = [work EXCEPT ![c] = Idle]
    /\ UNCHANGED <<logVars, znode, writes, acknowledged, reads, taken, sealedFor, used>>

DecideBlock(c) ==
    LET first == work[c].first
        block == [type |-> "block", term |-> leads[c], last |-> first]
        behind == [type |-> "zookeeper", term |-> leads[c], next |-> first]
    IN /\ work[c].stage = "claimed" /\ MayDecide(c) /\ SamePhase(c)
       /\ Propose(c, IF first > NextId(Applied(c)) THEN <<behind, block>> ELSE <<block>>)
       /\ work' = [work EXCEPT ![c] = [stage |-> "deciding"]]
       /\ UNCHANGED <<committed, newest, leads, applied, znode, writes, acknowledged, reads, taken, sealedFor, used>>

(* Once ZooKeeper counts no more, the quorum needs no claim.                *)
DecideAlone(c) ==
    LET first == NextId(Applied(c))
    IN /\ MayDecide(c) /\ work[c] = Idle
       /\ Phase(c) = "finalized"
       /\ first < Highest
       /\ Propose(c, <<[type |-> "block", term |-> leads[c], last |-> first]>>)
       /\ UNCHANGED <<committed, newest, leads, applied, migrationVars>>

-----------------------------------------------------------------------------
(* Orders and steps.                                                        *)

PhaseRecord(c, phase, version) == [type |-> "phase", term |-> leads[c], phase |-> phase, version |-> version]

Order(c, phase) ==
    /\ MayDecide(c)
    /\ used.orders < MaxOrders
    /\ phase \in NextPhases(Phase(c)) /\ phase # Phase(c)
    /\ \/ phase \in {"finalizing", "rolling back"}
       \/ phase = "import" /\ NextId(Applied(c)) <= znode.block.last + 1     \* else the quorum is ahead
    /\ Propose(c, <<PhaseRecord(c, phase, -1)>>)
    /\ used' = [used EXCEPT !.orders = @ + 1]
    /\ UNCHANGED <<committed, newest, leads, applied, znode, writes, acknowledged, reads, work, taken, sealedFor>>

(* What was read is committed together with the phase, and what is written  *)
(* next replaces just the version that was read.                            *)
Look(c) ==
    LET phase == Phase(c)
        free == NextFree(znode.block, NextId(Applied(c)))
        to == IF phase = "import" THEN "dual write" ELSE phase
        behind == [type |-> "zookeeper", term |-> leads[c], next |-> free]
        first == IF free > NextId(Applied(c)) THEN <<behind>> ELSE <<>>
    IN /\ MayDecide(c) /\ work[c] = Idle
       /\ phase \in {"import", "finalizing", "rolling back"}
       /\ IF phase = "finalizing" /\ znode.block = Seal
          THEN /\ Propose(c, <<PhaseRecord(c, "finalized", -1)>>)
               /\ UNCHANGED work
          ELSE /\ Propose(c, first \o <<PhaseRecord(c, to, znode.version)>>)
               /\ work' = [work EXCEPT ![c] = [stage |-> "looked", read |-> znode, phase |-> to]]
       /\ UNCHANGED <<committed, newest, leads, applied, znode, writes, acknowledged, reads, taken, sealedFor, used>>

(* The look is committed: nobody else led since.                            *)
WriteEnd(c) ==
    LET read == work[c].read
        free == NextFree(read.block, NextId(Applied(c)))
        back == IF free = 0 THEN NoBlock
                ELSE IF read.block.last + 1 # free THEN [first |-> free - 1, last |-> free - 1, by |-> Quorum]
                ELSE read.block
        w == [who |-> c, version |-> read.version, block |-> IF Phase(c) = "finalizing" THEN Seal ELSE back]
    IN /\ work[c].stage = "looked" /\ MayDecide(c)
       /\ Phase(c) = work[c].phase
       /\ IF Phase(c) = "dual write"
          THEN /\ work' = [work EXCEPT ![c] = Idle]
               /\ UNCHANGED <<writes, used>>
          ELSE /\ Write(w)
               /\ work' = [work EXCEPT ![c] = [stage |-> "ending", write |-> w, phase |-> Phase(c)]]
       /\ UNCHANGED <<logVars, znode, acknowledged, reads, taken, sealedFor>>

HearEnd(c) ==
    /\ work[c].stage = "ending" /\ MayDecide(c)
    /\ work[c].write \in acknowledged
    /\ acknowledged' = acknowledged \ {work[c].write}
    /\ IF Phase(c) = work[c].phase
       THEN Propose(c, <<PhaseRecord(c, IF Phase(c) = "finalizing" THEN "finalized" ELSE "rolled back", -1)>>)
       ELSE UNCHANGED batch
    /\ work' = [work EXCEPT ![c] = Idle]
    /\ UNCHANGED <<committed, newest, leads, applied, znode, writes, reads, taken, sealedFor, used>>

Answer(c) ==
    /\ Apply(c)
    /\ work' = [work EXCEPT ![c] = IF @.stage = "deciding" THEN Idle ELSE @]
    /\ UNCHANGED <<znode, writes, acknowledged, reads, taken, sealedFor, used>>

(* Whoever comes to lead, or leads no more, forgets what it did.            *)
Forget(c) == work' = [work EXCEPT ![c] = Idle] /\ UNCHANGED <<znode, writes, acknowledged, reads, taken, sealedFor, used>>

Bounded == Cardinality({n \in 1..Len(committed) : committed[n].type # "first"}) < MaxBlocks

Next ==
    \/ \E w \in writes : Carry(w)
    \/ \E b \in OldBrokers : BrokerReads(b) \/ BrokerWrites(b) \/ \E w \in acknowledged : BrokerHears(b, w)
    \/ \E c \in Controllers :
        \/ (Elect(c) \/ Depose(c)) /\ Forget(c)
        \/ Serve(c) /\ UNCHANGED migrationVars
        \/ Commit(c) /\ UNCHANGED migrationVars
        \/ Answer(c)
        \/ ReadForClaim(c) \/ WriteClaim(c) \/ HearClaim(c) \/ GiveUp(c) \/ HearEnd(c) \/ WriteEnd(c)
        \/ Bounded /\ (DecideBlock(c) \/ DecideAlone(c) \/ Look(c))
        \/ Bounded /\ \E phase \in {"import", "finalizing", "rolling back"} : Order(c, phase)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

Committed(id) == {n \in 1..Len(committed) : committed[n].type = "block" /\ committed[n].last = id}

(* No ID twice, by the quorum, by brokers, or by both.                      *)
NoIdTwice == \A id \in IDs : Cardinality(Committed(id)) + Cardinality(taken[id]) <= 1

(* No broker is given a block behind the seal. *)
NothingBehindTheSeal == sealedFor => \A w \in writes \cup acknowledged : w.version < znode.version \/ w.who \notin OldBrokers \/ w.block.last < Highest

(* M3 and S1: blocks rise, and none is committed in a phase that pauses.    *)
S1 == \A n \in 1..Len(committed) : committed[n].type = "block" => committed[n].last = NextId(SubSeq(committed, 1, n - 1))
M1 == \A n \in 1..Len(committed) : committed[n].type = "phase" =>
        committed[n].phase \in NextPhases(PhaseOf(SubSeq(committed, 1, n - 1)))
M3 == \A n \in 1..Len(committed) : committed[n].type = "block" =>
        PhaseOf(SubSeq(committed, 1, n - 1)) \notin {"finalizing", "rolling back"}
=============================================================================
