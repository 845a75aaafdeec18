---------------------------- MODULE ReplicatedLog ----------------------------
(***************************************************************************)
(* The log as Consensus gives it to the leader's decisions: one history of *)
(* committed records, leaders that may not know that they are deposed, and *)
(* an entry under way that a later leader may find in its log or not.      *)
(*                                                                         *)
(* A leader decides on applied state alone, with one batch in flight (D1,  *)
(* decision 0003).                                                         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Controllers,
    MaxTerm         \* a bound of the model

VARIABLES
    committed,      \* Seq of records, each with the term that it was proposed in
    newest,         \* the newest term that anybody leads
    leads,          \* [Controllers -> Nat]: the term that it believes it leads, 0: none
    applied,        \* [Controllers -> Nat]: of a leader that serves, how far it has applied; 0: it does not serve
    batch           \* [Controllers -> its batch in flight]

logVars == <<committed, newest, leads, applied, batch>>

NoBatch == [term |-> 0, base |-> 0, records |-> <<>>]

LogInit ==
    /\ committed = <<>>
    /\ newest = 0
    /\ leads = [c \in Controllers |-> 0]
    /\ applied = [c \in Controllers |-> 0]
    /\ batch = [c \in Controllers |-> NoBatch]

(* Somebody wins an election. Who led before may not hear of it for long.   *)
Elect(c) ==
    /\ newest < MaxTerm
    /\ newest' = newest + 1
    /\ leads' = [leads EXCEPT ![c] = newest + 1]
    /\ applied' = [applied EXCEPT ![c] = 0]
    /\ UNCHANGED <<committed, batch>>

(* A leader hears that it is deposed, or its process dies: whoever waits    *)
(* for its batch never learns what became of it (decision 0004).            *)
Depose(c) ==
    /\ leads[c] # 0
    /\ leads' = [leads EXCEPT ![c] = 0]
    /\ applied' = [applied EXCEPT ![c] = 0]
    /\ UNCHANGED <<committed, newest, batch>>

(* The first entry of the term is committed, with it what the leader found  *)
(* in its log: nothing, or one batch that was under way. It serves.         *)
Inherited == {batch[c].records : c \in {d \in Controllers : batch[d].base = Len(committed)}}

Serve(c) ==
    /\ leads[c] = newest /\ newest # 0
    /\ applied[c] = 0
    /\ \E found \in Inherited \cup {<<>>} :
        LET after == committed \o found \o <<[type |-> "first", term |-> newest]>>
        IN /\ committed' = after
           /\ applied' = [applied EXCEPT ![c] = Len(after)]
    /\ batch' = [batch EXCEPT ![c] = NoBatch]
    /\ UNCHANGED <<newest, leads>>

(* A leader that serves, or believes so, appends what it has decided.       *)
MayDecide(c) == leads[c] # 0 /\ applied[c] # 0 /\ batch[c] = NoBatch

Propose(c, records) ==
    /\ MayDecide(c)
    /\ batch' = [batch EXCEPT ![c] = [term |-> leads[c], base |-> applied[c], records |-> records]]

(* A majority holds the batch, of the newest leader alone.                  *)
Commit(c) ==
    /\ leads[c] = newest /\ batch[c] # NoBatch /\ batch[c].term = newest
    /\ batch[c].base = Len(committed)
    /\ committed' = committed \o batch[c].records
    /\ UNCHANGED <<newest, leads, applied, batch>>

(* The leader has applied it, at the very place and in the very term in     *)
(* which it was proposed (D2), and answers. The action that extends this    *)
(* one says what is answered.                                               *)
HasApplied(c) ==
    LET b == batch[c]
        last == b.base + Len(b.records)
    IN /\ leads[c] # 0 /\ b # NoBatch /\ b.term = leads[c]
       /\ Len(committed) >= last
       /\ SubSeq(committed, b.base + 1, last) = b.records

Apply(c) ==
    /\ HasApplied(c)
    /\ applied' = [applied EXCEPT ![c] = batch[c].base + Len(batch[c].records)]
    /\ batch' = [batch EXCEPT ![c] = NoBatch]
    /\ UNCHANGED <<committed, newest, leads>>
=============================================================================
