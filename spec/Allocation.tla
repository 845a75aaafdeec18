----------------------------- MODULE Allocation -----------------------------
(***************************************************************************)
(* From the leader's decision to the ID that a client is given (KIP-730):  *)
(* registrations, blocks, and the agent's reserve. Requests and answers    *)
(* are lost, repeated and late; agents die and forget, and the old process *)
(* of a broker lives on beside the new one.                                *)
(***************************************************************************)
EXTENDS ReplicatedLog

CONSTANTS
    Brokers,
    Agents,         \* processes; each serves one broker, and several may serve the same
    BrokerOf,       \* [Agents -> Brokers]
    BlockSize,
    MaxRecords      \* a bound of the model

VARIABLES
    requests,       \* that agents have sent
    answers,        \* that leaders have sent
    epoch,          \* [Agents -> the registration in force as far as it knows, 0: none]
    asking,         \* [Agents -> its request for a block, or NoRequest]
    reserve,        \* [Agents -> the IDs at hand]
    highest,        \* [Agents -> the highest ID ever held, -1: none]
    given           \* history: {<<agent, ID, count>>} as [ID -> how often it was claimed]

allocationVars == <<requests, answers, epoch, asking, reserve, highest, given>>
vars == <<logVars, allocationVars>>

NoRequest == [agent |-> "none"]
IDs == 0..(BlockSize * MaxRecords)

(* The replicated state is what the committed records say.                  *)
Blocks(l) == {n \in 1..Len(l) : l[n].type = "block"}
NextId(l) == LET ends == {l[n].last : n \in Blocks(l)} IN IF ends = {} THEN 0 ELSE 1 + CHOOSE x \in ends : \A y \in ends : y <= x

(* A broker's epoch is where its newest registration stands in the log (S4).*)
EpochOf(l, b) ==
    LET all == {n \in 1..Len(l) : l[n].type = "register" /\ l[n].broker = b}
    IN IF all = {} THEN 0 ELSE CHOOSE n \in all : \A k \in all : k <= n

Applied(c) == SubSeq(committed, 1, applied[c])

Init ==
    /\ LogInit
    /\ requests = {}
    /\ answers = {}
    /\ epoch = [a \in Agents |-> 0]
    /\ asking = [a \in Agents |-> NoRequest]
    /\ reserve = [a \in Agents |-> {}]
    /\ highest = [a \in Agents |-> -1]
    /\ given = [id \in IDs |-> 0]

-----------------------------------------------------------------------------
(* The leader.                                                              *)

RegisterRecord(c, r) == [type |-> "register", term |-> leads[c], broker |-> BrokerOf[r.agent], agent |-> r.agent]

BlockRecord(c, r) ==
    LET first == NextId(Applied(c))
    IN [type |-> "block", term |-> leads[c], broker |-> BrokerOf[r.agent], epoch |-> r.epoch,
        first |-> first, last |-> first + BlockSize - 1]

(* One request as a batch of its own: the next one waits for it.            *)
Decide(c, r) ==
    /\ MayDecide(c)
    /\ Len(committed) < MaxRecords
    /\ \/ /\ r.type = "register"
          /\ Propose(c, <<RegisterRecord(c, r)>>)
       \/ /\ r.type = "allocate"
          /\ r.epoch = EpochOf(Applied(c), BrokerOf[r.agent])      \* S5, else STALE_BROKER_EPOCH
          /\ Propose(c, <<BlockRecord(c, r)>>)
    /\ UNCHANGED <<committed, newest, leads, applied, allocationVars>>

Answer(c) ==
    /\ Apply(c)
    /\ LET place == batch[c].base + 1
           record == batch[c].records[1]
       IN answers' = answers \cup {IF record.type = "register"
              THEN [type |-> "registered", agent |-> record.agent, epoch |-> place]
              ELSE [type |-> "block", broker |-> record.broker, epoch |-> record.epoch,
                    first |-> record.first, last |-> record.last]}
    /\ UNCHANGED <<requests, epoch, asking, reserve, highest, given>>

-----------------------------------------------------------------------------
(* Agents.                                                                  *)

AskToRegister(a) ==
    /\ requests' = requests \cup {[type |-> "register", agent |-> a]}
    /\ requests' # requests
    /\ UNCHANGED <<logVars, answers, epoch, asking, reserve, highest, given>>

(* A newer registration is taken over; with an older one nothing happens.   *)
TakeRegistration(a, m) ==
    /\ m.type = "registered" /\ m.agent = a
    /\ m.epoch > epoch[a]
    /\ epoch' = [epoch EXCEPT ![a] = m.epoch]
    /\ asking' = [asking EXCEPT ![a] = NoRequest]
    /\ UNCHANGED <<logVars, requests, answers, reserve, highest, given>>

AskForBlock(a) ==
    LET request == [type |-> "allocate", agent |-> a, epoch |-> epoch[a]]
    IN /\ epoch[a] # 0 /\ asking[a] = NoRequest
       /\ asking' = [asking EXCEPT ![a] = request]
       /\ requests' = requests \cup {request}
       /\ UNCHANGED <<logVars, answers, epoch, reserve, highest, given>>

(* The answer of a request never comes twice, as each has its connection;   *)
(* so an answer is gone once it was taken.                                  *)
TakeBlock(a, m) ==
    /\ m.type = "block" /\ m.broker = BrokerOf[a]
    /\ asking[a] # NoRequest
    /\ m.epoch = asking[a].epoch
    /\ answers' = answers \ {m}
    /\ asking' = [asking EXCEPT ![a] = NoRequest]
    /\ IF m.epoch = epoch[a] /\ m.first > highest[a]               \* A5, A3
       THEN /\ reserve' = [reserve EXCEPT ![a] = @ \cup (m.first..m.last)]
            /\ highest' = [highest EXCEPT ![a] = m.last]
       ELSE UNCHANGED <<reserve, highest>>
    /\ UNCHANGED <<logVars, requests, epoch, given>>

(* No answer came in time: it asks again, and for another block.            *)
GiveUp(a) ==
    /\ asking[a] # NoRequest
    /\ asking' = [asking EXCEPT ![a] = NoRequest]
    /\ UNCHANGED <<logVars, requests, answers, epoch, reserve, highest, given>>

(* A client is given the lowest ID at hand (A1).                            *)
Claim(a) ==
    /\ reserve[a] # {}
    /\ LET id == CHOOSE x \in reserve[a] : \A y \in reserve[a] : x <= y
       IN /\ reserve' = [reserve EXCEPT ![a] = @ \ {id}]
          /\ given' = [given EXCEPT ![id] = @ + 1]
    /\ UNCHANGED <<logVars, requests, answers, epoch, asking, highest>>

(* The process dies, and what it held is a gap.                             *)
Die(a) ==
    /\ epoch' = [epoch EXCEPT ![a] = 0]
    /\ asking' = [asking EXCEPT ![a] = NoRequest]
    /\ reserve' = [reserve EXCEPT ![a] = {}]
    /\ highest' = [highest EXCEPT ![a] = -1]
    /\ UNCHANGED <<logVars, requests, answers, given>>

Next ==
    \/ \E c \in Controllers :
        \/ (Elect(c) \/ Depose(c) \/ Serve(c) \/ Commit(c)) /\ UNCHANGED allocationVars
        \/ Answer(c)
        \/ \E r \in requests : Decide(c, r)
    \/ \E a \in Agents :
        \/ AskToRegister(a) \/ AskForBlock(a) \/ GiveUp(a) \/ Claim(a) \/ Die(a)
        \/ \E m \in answers : TakeRegistration(a, m) \/ TakeBlock(a, m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

(* The promise.                                                             *)
NoIdTwice == \A id \in IDs : given[id] <= 1

(* S1, S2: blocks follow each other.                                        *)
S1 == \A n \in Blocks(committed) :
        committed[n].first = NextId(SubSeq(committed, 1, n - 1)) /\ committed[n].last = committed[n].first + BlockSize - 1
S5 == \A n \in Blocks(committed) : committed[n].epoch = EpochOf(SubSeq(committed, 1, n - 1), committed[n].broker)

(* Nothing acknowledged is lost: each answer is in the log.                 *)
AnswersAreCommitted ==
    \A m \in answers : m.type = "block" =>
        \E n \in Blocks(committed) : committed[n].first = m.first /\ committed[n].last = m.last
            /\ committed[n].broker = m.broker /\ committed[n].epoch = m.epoch
A3 == \A a \in Agents : \A id \in reserve[a] : id <= highest[a]
=============================================================================
