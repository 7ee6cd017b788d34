// Package rpcframe reads and writes the frames between a controller and its workers, in the format
// of python/golaunch/wire.py but without segments of shared memory. A frame is a header, a name and
// a body. All numbers are little-endian.
package rpcframe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Kind is the kind of a frame.
type Kind byte

const (
	Hello  Kind = iota + 1 // who a worker is, in JSON
	Make                   // the object that a worker must make before any call
	Ready                  // the worker can be called
	Call                   // a method, by name, and its argument
	Result                 // the answer to a call
	Error                  // why a call failed, in JSON; from a controller, why it gives up the worker, as text
	Item                   // a part of an answer that continues
	End                    // the end of such an answer
	Cancel                 // the answer is no longer wanted
	Credit                 // one more part is wanted
	Bye                    // the worker is not needed any more
	Ack                    // how many frames were received
)

// The codecs of a body.
const (
	Pickle byte = iota
	JSON
	Raw
)

const (
	// HeaderSize is the size of kind, codec, number of buffers, length of the name, number of the
	// call, and length of the body, in bytes.
	HeaderSize = 24
	// MaxName bounds a method's name, MaxHello a greeting, and MaxBody any other body.
	MaxName  = 256
	MaxHello = 64 << 10
	MaxBody  = 4 << 30
	// MaxOutstanding bounds the calls of one worker that have no answer.
	MaxOutstanding = 1000
)

// Frame is one message.
type Frame struct {
	Kind  Kind
	Codec byte
	Call  uint64
	Name  string
	Body  []byte
}

// Failure is the body of an Error from a worker that is written in Go.
type Failure struct {
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"`
}

// Making is the body of a Make for a worker that is written in Go. Turns are names of handlers. The
// worker's Ready lists which of them it has, in JSON.
type Making struct {
	Turns []string `json:"turns"`
}

// Greeting is the body of a Hello.
type Greeting struct {
	Key       string `json:"key"`
	Job       string `json:"job"`
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	Attempt   int    `json:"attempt"`
	Node      string `json:"node"`
	GPU       string `json:"gpu,omitempty"`
	PID       int    `json:"pid"`
	// Direct says that the other end is on this machine and takes descriptors. A worker in Go takes
	// none.
	Direct bool `json:"direct"`
	// Received is how many of the controller's frames this process has received on earlier
	// connections; nil if it does not continue from them.
	Received *uint64 `json:"received,omitempty"`
}

// Head returns the bytes that precede the body of a frame.
func Head(f Frame) ([]byte, error) {
	if len(f.Name) > MaxName || len(f.Body) > MaxBody {
		return nil, fmt.Errorf("a frame with a name of %d bytes and a body of %d: %d and %d at most", len(f.Name), len(f.Body), MaxName, MaxBody)
	}
	head := make([]byte, HeaderSize, HeaderSize+len(f.Name))
	head[0], head[1] = byte(f.Kind), f.Codec
	binary.LittleEndian.PutUint32(head[4:], uint32(len(f.Name)))
	binary.LittleEndian.PutUint64(head[8:], f.Call)
	binary.LittleEndian.PutUint64(head[16:], uint64(len(f.Body)))
	return append(head, f.Name...), nil
}

// Write writes a frame at once.
func Write(w io.Writer, f Frame) error {
	head, err := Head(f)
	if err != nil {
		return err
	}
	parts := net.Buffers{head}
	if len(f.Body) > 0 {
		parts = append(parts, f.Body)
	}
	_, err = parts.WriteTo(w)
	return err
}

// ErrFrame says that the other end has sent a frame that is not allowed.
var ErrFrame = errors.New("malformed frame")

// Read reads the next frame, whose body may have at most most bytes.
func Read(r *bufio.Reader, most uint64) (Frame, error) {
	var head [HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	name, body := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint64(head[16:])
	if head[0] == 0 || head[0] > byte(Ack) || head[1] > Raw || binary.LittleEndian.Uint16(head[2:]) != 0 || name > MaxName || body > most {
		return Frame{}, fmt.Errorf("%w: kind %d, name of %d bytes, body of %d bytes, %d at most", ErrFrame, head[0], name, body, most)
	}
	f := Frame{Kind: Kind(head[0]), Codec: head[1], Call: binary.LittleEndian.Uint64(head[8:]), Body: make([]byte, body)}
	text := make([]byte, name)
	if _, err := io.ReadFull(r, text); err != nil {
		return Frame{}, unexpected(err)
	}
	f.Name = string(text)
	if _, err := io.ReadFull(r, f.Body); err != nil {
		return Frame{}, unexpected(err)
	}
	return f, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
