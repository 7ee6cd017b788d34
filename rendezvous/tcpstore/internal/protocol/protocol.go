// Package protocol has the messages of clients, stores and proxies: torch's requests, the requests
// of a proxy, their limits, and how to find the end of a request.
package protocol

import "encoding/binary"

// These are the requests of torch 2.2 and later, by their first byte
// (torch/csrc/distributed/c10d/TCPStoreBackend.hpp). Later versions of torch only added numbers, so
// one server serves them all.
const (
	OpValidate = iota
	OpSet
	OpCompareSet
	OpGet
	OpAdd
	OpCheck
	OpWait
	OpNumKeys
	OpDeleteKey
	OpAppend
	OpMultiGet
	OpMultiSet
	OpCancelWait
	OpPing
	OpQueuePush
	OpQueuePop
	OpQueueLen
	OpListKeys
	OpBarrier
)

// These are the requests that a proxy sends to its store beside torch's requests. They are
// golaunch's own.
const (
	OpRound   = 64 + iota // the last version that the proxy received, and a list of keys
	OpHold                // the proxy's number for a wait, and a list of keys
	OpArrive              // the proxy's number for a barrier, a key and a size
	OpDrop                // the number of a wait whose client has given up
	OpTaken               // the number of a wait that a queue ended, and whose client continues
	OpClient              // the client whose requests follow
	OpClients             // a list of the proxy's clients
	OpsEnd
)

// ProxyGreeting is what a proxy sends first: a name and the version of the protocol between proxy
// and store. No client of torch begins like this.
const ProxyGreeting = "golaunch\x01"

// These are the messages of a store to a proxy, by their first byte. Their length in 8 bytes
// follows.
const (
	MsgHello   = iota
	MsgReply   // the reply to the oldest request without an answer
	MsgRefused // instead of a reply: why the proxy must disconnect the client
	MsgExpel   // the number of a client, and why the proxy must disconnect it
	MsgEnded   // the number of a wait, and 1 if a queue has ended it
	HeadLength = 9
)

// These are a round's results for a key.
const (
	FoundNothing  = iota
	FoundValue    // a proxy may cache the value until the store reports a change
	FoundVolatile // the value has changed before: a proxy may not cache it
	FoundLater    // the round is full, so the proxy must ask again
)

// MaxRound is how many bytes of values a round may contain. The next round has the rest.
const MaxRound = 32 << 20

// Magic follows OpValidate in the greeting of torch 2.2 and later. Older versions have no greeting,
// and no key is as long as this number.
const Magic = 0x3C85F7CE

// Greeting is the length of a greeting: OpValidate and Magic.
const Greeting = 5

// Unlisted is the PID of a client that does not belong to the job. No process has this PID.
const Unlisted = 1<<32 - 1

// These are one-byte replies.
const (
	StopWaiting  = 0
	WaitCanceled = 1
	Ready        = 0
	NotReady     = 1
)

// These are the limits of torch's libuv server (TCPStoreLibUvBackend.cpp), in bytes and in keys of
// a request. A client that exceeds them is disconnected.
const (
	MaxKey   = 8192
	MaxValue = 8 << 20
	MaxKeys  = 128 << 10
)

// Frame is the encoded form of a value: its length in 8 bytes, then its bytes. A shared frame never
// changes, so any number of replies can use it.
type Frame []byte

// FrameOf frames a short value.
func FrameOf(body string) Frame {
	f := binary.LittleEndian.AppendUint64(make(Frame, 0, 8+len(body)), uint64(len(body)))
	return append(f, body...)
}

// Missing is the answer for a key that does not exist.
var Missing = FrameOf("")

func (f Frame) Body() []byte { return f[8:] }

// WithLength writes the length that the frame now has.
func (f Frame) WithLength() Frame {
	binary.LittleEndian.PutUint64(f, uint64(len(f)-8))
	return f
}
