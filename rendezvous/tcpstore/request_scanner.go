package tcpstore

import (
	"encoding/binary"
	"fmt"
)

// field is the type of a part of a request.
type field byte

const (
	key   field = iota // its length in 8 bytes, then its bytes
	value              // the same
	int8B              // 8 bytes
	int4B              // 4 bytes
)

// shape is what follows the first byte of a request: some bytes, then the fields, or a list of them
// that begins with its length in 8 bytes.
type shape struct {
	list   bool
	fields []field
	bytes  int
}

var shapes = [...]shape{
	opValidate: {}, opSet: {fields: []field{key, value}}, opCompareSet: {fields: []field{key, value, value}},
	opGet: {fields: []field{key}}, opAdd: {fields: []field{key, int8B}}, opCheck: {list: true, fields: []field{key}}, opWait: {list: true, fields: []field{key}},
	opNumKeys: {}, opDeleteKey: {fields: []field{key}}, opAppend: {fields: []field{key, value}}, opMultiGet: {list: true, fields: []field{key}},
	opMultiSet: {list: true, fields: []field{key, value}}, opCancelWait: {}, opPing: {fields: []field{int4B}},
	opQueuePush: {fields: []field{key, value}}, opQueuePop: {fields: []field{key}}, opQueueLen: {fields: []field{key}},
	opListKeys: {}, opBarrier: {fields: []field{key, int8B}},
	opRound: {list: true, fields: []field{key}, bytes: 8}, opHold: {list: true, fields: []field{key}, bytes: 4},
	opArrive: {fields: []field{key, int8B}, bytes: 4}, opDrop: {bytes: 4}, opTaken: {bytes: 4}, opClient: {bytes: 4},
	opClients: {list: true, fields: []field{int8B, int4B, int4B, int4B}},
}

// scanner finds the end of a request as its bytes come, and refuses it as soon as it exceeds a
// limit. It looks at no byte twice, however slowly they come. Only the scanner reads lengths that
// were not checked.
type scanner struct {
	shape shape
	// at is where the next field begins; left is the number of fields from there.
	at, left int
	// unlisted says that the length of the list has yet to come.
	unlisted bool
}

// begin starts a request.
func (s *scanner) begin(op byte) {
	shape := shapes[op]
	*s = scanner{shape: shape, at: 1 + shape.bytes, left: len(shape.fields), unlisted: shape.list}
}

// scan continues with all bytes of the request so far. It returns 0 when the request ends at s.at,
// else the length at which it is worth calling again.
func (s *scanner) scan(b []byte) (need int, err error) {
	if s.unlisted {
		if len(b) < s.at+8 {
			return s.at + 8, nil
		}
		n, err := limited(b[s.at:], maxKeys, "a list of keys")
		if err != nil {
			return 0, err
		}
		s.at, s.left, s.unlisted = s.at+8, n*len(s.shape.fields), false
	}
	if s.at > len(b) {
		return s.at, nil
	}
	for ; s.left > 0; s.left-- {
		end, err := s.field(b)
		if err != nil || end > len(b) {
			return end, err
		}
		s.at = end
	}
	return 0, nil
}

// field returns where the next field ends, as far as that is known.
func (s *scanner) field(b []byte) (end int, err error) {
	n, limit, what := 0, uint64(maxKey), "a key"
	switch f := s.shape.fields[len(s.shape.fields)-1-(s.left-1)%len(s.shape.fields)]; f {
	case int4B:
		return s.at + 4, nil
	case int8B:
		return s.at + 8, nil
	case value:
		limit, what = maxValue, "a value"
	}
	if len(b) >= s.at+8 {
		n, err = limited(b[s.at:], limit, what)
	}
	return s.at + 8 + n, err
}

// limited reads a length and checks it.
func limited(b []byte, limit uint64, what string) (int, error) {
	n := binary.LittleEndian.Uint64(b)
	if n > limit {
		return 0, fmt.Errorf("it sent %s of length %d, above the limit of %d", what, n, limit)
	}
	return int(n), nil
}

// args reads the fields of a scanned request in order. What it returns is the request's memory.
type args []byte

func (a *args) take(n int) []byte {
	b := (*a)[:n]
	*a = (*a)[n:]
	return b
}

func (a *args) int4B() uint32 { return binary.LittleEndian.Uint32(a.take(4)) }
func (a *args) int8B() int64  { return int64(binary.LittleEndian.Uint64(a.take(8))) }
func (a *args) key() []byte   { return a.take(int(a.int8B())) }

// first is the first of n keys, if there is one.
func (a args) first(n int) []byte {
	if n == 0 {
		return nil
	}
	return a.key()
}

// value includes the length.
func (a *args) value() frame {
	n := binary.LittleEndian.Uint64(*a)
	return frame(a.take(8 + int(n)))
}

// pair returns the first key and value.
func (a args) pair() []byte {
	rest := a
	rest.key()
	rest.value()
	return a[:len(a)-len(rest)]
}
