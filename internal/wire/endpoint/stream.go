package endpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Once a worker is taken, its connection carries chunks: one byte for the kind, four bytes for the
// length of the content, and the content.
const (
	// chunkBytes carries bytes from one end to the other, unchanged.
	chunkBytes = iota + 1
	// chunkBeside names a blob; the node passes its descriptor to the worker with the next byte of
	// chunkBytes. chunkInline names a blob whose bytes the worker reads in the place of this chunk.
	// After either chunk, the controller sends this worker nothing until it has the answer.
	chunkBeside
	chunkInline
	// chunkHave answers that the node has the blob. chunkWant answers that the controller must send
	// the blob now. The controller then sends the blob's bytes alone, without a chunk header.
	chunkHave
	chunkWant
)

const (
	headSize = 5
	// refSize is the length of a blob's ID and size.
	refSize = 32
	// buffer is the size of the largest chunk, and so of each direction's buffer, in bytes.
	buffer = 256 << 10
)

// errChunk says that the two ends have different versions, or that one of them is malicious.
var errChunk = errors.New("unexpected chunk; install the same golaunch on all nodes")

// putHead writes a chunk's header into p.
func putHead(p []byte, kind byte, size int) {
	p[0] = kind
	binary.LittleEndian.PutUint32(p[1:], uint32(size))
}

func readHead(in io.Reader) (kind byte, size int, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, 0, err
	}
	if n := binary.LittleEndian.Uint32(head[1:]); n <= buffer {
		return head[0], int(n), nil
	}
	return 0, 0, errChunk
}

// ID distinguishes the blobs of controllers that share a key. The same ID means the same content.
type ID [3]uint64

// Blob is content for a worker.
type Blob struct {
	ID      ID
	Size    int64
	Content io.ReaderAt
	// Inline says that the blob is part of the bytes that the worker reads. Otherwise the worker
	// gets a descriptor with the next byte that is written.
	Inline bool
}

// Stream is a controller's end of the connection to a worker. Read and Write transfer the bytes of
// the worker. One goroutine must always read, because [Stream.Send] gets its answers from Read.
type Stream struct {
	net.Conn
	in *bufio.Reader
	// left is the size of the unread part of a chunk.
	left int
	// answers has the node's answer to each named blob: chunkHave or chunkWant.
	answers chan byte
	over    chan struct{}
	end     sync.Once

	writing sync.Mutex
	out     []byte
}

func newStream(conn net.Conn) *Stream {
	return &Stream{Conn: conn, in: bufio.NewReaderSize(conn, 16<<10), answers: make(chan byte, 1), over: make(chan struct{})}
}

// Read reads what the worker has sent.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.read(p)
	if err != nil {
		s.end.Do(func() { close(s.over) })
	}
	return n, err
}

func (s *Stream) read(p []byte) (int, error) {
	for s.left == 0 {
		kind, size, err := readHead(s.in)
		if err != nil {
			return 0, err
		}
		switch {
		case kind == chunkBytes:
			s.left = size
		case (kind == chunkHave || kind == chunkWant) && size == 0:
			select {
			case s.answers <- kind:
			default:
				return 0, errChunk
			}
		default:
			return 0, errChunk
		}
	}
	n, err := s.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// Write sends p to the worker.
func (s *Stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.write(p)
}

func (s *Stream) write(p []byte) (done int, err error) {
	for done < len(p) {
		n := min(len(p)-done, buffer)
		s.out = append(append(s.out[:0], make([]byte, headSize)...), p[done:done+n]...)
		putHead(s.out, chunkBytes, n)
		if _, err := s.Conn.Write(s.out); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Send gives the worker a blob, after everything that was written before. When Send returns, the
// content is no longer needed. Send waits while the worker has too much unread, but no longer than
// the connection lives.
func (s *Stream) Send(b Blob) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	ref := make([]byte, headSize, headSize+refSize)
	putHead(ref, chunkBeside, refSize)
	if b.Inline {
		ref[0] = chunkInline
	}
	for _, n := range append(b.ID[:], uint64(b.Size)) {
		ref = binary.LittleEndian.AppendUint64(ref, n)
	}
	if _, err := s.Conn.Write(ref); err != nil {
		return err
	}
	select {
	case kind := <-s.answers:
		if kind == chunkHave {
			return nil
		}
	case <-s.over:
		return net.ErrClosed
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{s.Conn}, struct{ io.Reader }{io.NewSectionReader(b.Content, 0, b.Size)}, make([]byte, buffer))
	if err == nil && n < b.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		s.Close() // the node waits for bytes that will not be sent
		return fmt.Errorf("send an object of %d bytes to a node: %w", b.Size, err)
	}
	return nil
}

// Close ends the connection to the worker.
func (s *Stream) Close() error {
	s.end.Do(func() { close(s.over) })
	return s.Conn.Close()
}
