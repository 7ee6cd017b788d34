package tcpstore

import "encoding/binary"

// The requests of torch 2.2 and later, by their first byte (torch/csrc/distributed/c10d/TCPStoreBackend.hpp). Numbers have only
// been appended since, so one server serves them all.
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

// The requests of a proxy to the store that it stands for, beside torch's. They are golaunch's own.
const (
	opRound  = 64 + iota // the version it has last heard of, and a list of keys
	opHold               // its number for a wait, and a list of keys
	opArrive             // likewise, for a barrier: a key and a size
	opDrop               // a wait, by its number, whose client has given up
	opTaken              // a wait that a queue ended, whose client goes on
	opClient             // whose the requests are that follow
	opRoster             // a list of its clients
	opsEnd
)

// linkGreeting is the first bytes of a proxy: a name, and the version of what they say to each other. No client of torch begins so.
const linkGreeting = "golaunch\x01"

// The messages of a store to a proxy, by their first byte. Their length in 8 bytes follows.
const (
	msgHello   = iota
	msgReply   // to the oldest request that has one
	msgRefused // instead of a reply: why the client must go
	msgExpel   // the number of a client, and why it must go
	msgEnded   // the number of a wait, and 1 if a queue has ended it
	headLength = 9
)

// What a round has of a key.
const (
	foundNothing = iota
	foundValue   // a proxy may keep it until it hears that it has changed
	foundFickle  // it has changed before: a proxy may not keep it
	foundLater   // the round has enough: ask again
)

// maxRound is how many bytes of values a round has before it leaves the others for the next.
const maxRound = 32 << 20

// magic follows opValidate in the first bytes of a client of torch 2.2 or later. Older ones have no such greeting, and no key is
// as long as this would say.
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

// The limits of torch's libuv server (TCPStoreLibUvBackend.cpp), in bytes and in keys of one request. Who exceeds them is
// disconnected.
const (
	maxKey   = 8192
	maxValue = 8 << 20
	maxKeys  = 128 << 10
)

// frame is a value as it goes over the wire: its length in 8 bytes, then its bytes. A frame that was handed out never changes, so
// any number of replies share it.
type frame []byte

// frameOf frames a short value.
func frameOf(body string) frame {
	f := binary.LittleEndian.AppendUint64(make(frame, 0, 8+len(body)), uint64(len(body)))
	return append(f, body...)
}

// missing is the answer for a key that does not exist.
var missing = frameOf("")

func (f frame) body() []byte { return f[8:] }

// sized writes the length that the frame now has.
func (f frame) sized() frame {
	binary.LittleEndian.PutUint64(f, uint64(len(f)-8))
	return f
}
