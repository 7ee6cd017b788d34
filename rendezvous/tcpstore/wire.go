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
