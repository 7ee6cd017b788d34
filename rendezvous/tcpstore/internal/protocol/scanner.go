package protocol

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

// shape describes what follows the first byte of a request. First come bytes as given by the field
// bytes. Then come the fields, or a list of fields that begins with its length in 8 bytes.
type shape struct {
	list   bool
	fields []field
	bytes  int
}

var shapes = [...]shape{
	OpValidate: {}, OpSet: {fields: []field{key, value}}, OpCompareSet: {fields: []field{key, value, value}},
	OpGet: {fields: []field{key}}, OpAdd: {fields: []field{key, int8B}}, OpCheck: {list: true, fields: []field{key}}, OpWait: {list: true, fields: []field{key}},
	OpNumKeys: {}, OpDeleteKey: {fields: []field{key}}, OpAppend: {fields: []field{key, value}}, OpMultiGet: {list: true, fields: []field{key}},
	OpMultiSet: {list: true, fields: []field{key, value}}, OpCancelWait: {}, OpPing: {fields: []field{int4B}},
	OpQueuePush: {fields: []field{key, value}}, OpQueuePop: {fields: []field{key}}, OpQueueLen: {fields: []field{key}},
	OpListKeys: {}, OpBarrier: {fields: []field{key, int8B}},
	OpRound: {list: true, fields: []field{key}, bytes: 8}, OpHold: {list: true, fields: []field{key}, bytes: 4},
	OpArrive: {fields: []field{key, int8B}, bytes: 4}, OpDrop: {bytes: 4}, OpTaken: {bytes: 4}, OpClient: {bytes: 4},
	OpClients: {list: true, fields: []field{int8B, int4B, int4B, int4B}},
}

// scanner finds the end of a request as its bytes arrive. It refuses the request as soon as the
// request exceeds a limit. It looks at each byte only once, however slowly the bytes arrive. No
// other code reads lengths that have not been checked.
type scanner struct {
	shape shape
	// at is where the next field begins; left is the number of fields from there.
	at, left int
	// unlisted says that the length of the list has not arrived yet.
	unlisted bool
}

// begin starts a request.
func (s *scanner) begin(op byte) {
	shape := shapes[op]
	*s = scanner{shape: shape, at: 1 + shape.bytes, left: len(shape.fields), unlisted: shape.list}
}

// scan continues with all bytes of the request so far. It returns 0 when the request ends at s.at.
// Otherwise it returns the length at which the next call is useful.
func (s *scanner) scan(b []byte) (need int, err error) {
	if s.unlisted {
		if len(b) < s.at+8 {
			return s.at + 8, nil
		}
		n, err := limited(b[s.at:], MaxKeys, "a list of keys")
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

// field returns where the next field ends, if enough bytes have arrived to know that.
func (s *scanner) field(b []byte) (end int, err error) {
	n, limit, what := 0, uint64(MaxKey), "a key"
	switch f := s.shape.fields[len(s.shape.fields)-1-(s.left-1)%len(s.shape.fields)]; f {
	case int4B:
		return s.at + 4, nil
	case int8B:
		return s.at + 8, nil
	case value:
		limit, what = MaxValue, "a value"
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

// Args reads the fields of a scanned request in order. The fields share the request's memory.
type Args []byte

func (a *Args) Take(n int) []byte {
	b := (*a)[:n]
	*a = (*a)[n:]
	return b
}

func (a *Args) Int4B() uint32 { return binary.LittleEndian.Uint32(a.Take(4)) }
func (a *Args) Int8B() int64  { return int64(binary.LittleEndian.Uint64(a.Take(8))) }
func (a *Args) Key() []byte   { return a.Take(int(a.Int8B())) }

// First returns the first of n keys, if there is one.
func (a Args) First(n int) []byte {
	if n == 0 {
		return nil
	}
	return a.Key()
}

// Value returns a value, including its length.
func (a *Args) Value() Frame {
	n := binary.LittleEndian.Uint64(*a)
	return Frame(a.Take(8 + int(n)))
}

// Pair returns the first key and value.
func (a Args) Pair() []byte {
	rest := a
	rest.Key()
	rest.Value()
	return a[:len(a)-len(rest)]
}
