package tcpstore

import "encoding/binary"

// The requests of torch 2.2 and later, by their first byte
// (torch/csrc/distributed/c10d/TCPStoreBackend.hpp). Later versions only appended numbers, so one
// server serves them all.
const (
	opValidate = iota
	opSet
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opDeleteKey
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPing
	opQueuePush
	opQueuePop
	opQueueLen
	opListKeys
	opBarrier
)

// The requests of a proxy to its store beside torch's. They are golaunch's own.
const (
	opRound   = 64 + iota // the version it has last heard of, and a list of keys
	opHold                // its number for a wait, and a list of keys
	opArrive              // its number for a barrier, a key and a size
	opDrop                // the number of a wait whose client has given up
	opTaken               // the number of a wait that a queue ended, and whose client continues
	opClient              // the client whose requests follow
	opClients             // a list of its clients
	opsEnd
)

// proxyGreeting is what a proxy sends first: a name and the version of the protocol between proxy
// and store. No client of torch begins like this.
const proxyGreeting = "golaunch\x01"

// The messages of a store to a proxy, by their first byte. Their length in 8 bytes follows.
const (
	msgHello   = iota
	msgReply   // to the oldest request that has one
	msgRefused // instead of a reply: why the client must go
	msgExpel   // the number of a client, and why it must go
	msgEnded   // the number of a wait, and 1 if a queue has ended it
	headLength = 9
)

// What a round says about a key.
const (
	foundNothing  = iota
	foundValue    // a proxy may cache it until told that it has changed
	foundVolatile // it has changed before: a proxy may not cache it
	foundLater    // the round is full: ask again
)

// maxRound is how many bytes of values a round contains before the rest is left for the next.
const maxRound = 32 << 20

// magic follows opValidate in the greeting of torch 2.2 and later. Older versions have no greeting,
// and no key is as long as this number.
const magic = 0x3C85F7CE

// greeting is the length of both.
const greeting = 5

// One-byte replies.
const (
	stopWaiting  = 0
	waitCanceled = 1
	ready        = 0
	notReady     = 1
)

// The limits of torch's libuv server (TCPStoreLibUvBackend.cpp), in bytes and in keys of a request.
// A client that exceeds them is disconnected.
const (
	maxKey   = 8192
	maxValue = 8 << 20
	maxKeys  = 128 << 10
)

// frame is a value as it is sent: its length in 8 bytes, then its bytes. A shared frame never
// changes, so any number of replies can use it.
type frame []byte

// frameOf frames a short value.
func frameOf(body string) frame {
	f := binary.LittleEndian.AppendUint64(make(frame, 0, 8+len(body)), uint64(len(body)))
	return append(f, body...)
}

// missing is the answer for a key that does not exist.
var missing = frameOf("")

func (f frame) body() []byte { return f[8:] }

// withLength writes the length that the frame now has.
func (f frame) withLength() frame {
	binary.LittleEndian.PutUint64(f, uint64(len(f)-8))
	return f
}
