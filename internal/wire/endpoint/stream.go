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

// From when a worker is taken, both ends of its connection say chunks: a byte of kind, the length of what follows in four bytes, and that.
const (
	// chunkBytes has bytes as they came.
	chunkBytes = iota + 1
	// chunkBeside names a blob whose descriptor goes beside the next byte, and chunkInline one that goes in place of this chunk. The controller then
	// says nothing more to this worker until it has its answer.
	chunkBeside
	chunkInline
	// chunkHave answers that the node has the blob, and chunkWant that it is to come now: its bytes follow, in no chunk.
	chunkHave
	chunkWant
)

const (
	headSize = 5
	// refSize is the length of what names a blob: ID and size.
	refSize = 32
	// buffer is the most bytes of a chunk, which is what each direction holds of what the other end has not taken.
	buffer = 256 << 10
)

// errChunk says that the two ends are of different versions, or that one of them lies.
var errChunk = errors.New("a chunk that makes no sense; install the same golaunch on all nodes")

// putHead writes a chunk's head into p.
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

// ID tells the blobs of one key apart: two with the same ID have the same content.
type ID [3]uint64

// Blob is what a worker is to get.
type Blob struct {
	ID      ID
	Size    int64
	Content io.ReaderAt
	// Inline says that it is a part of the bytes that the worker reads. Else it comes as a descriptor, beside the next byte that is written.
	Inline bool
}

// Stream is a controller's end of the way to a worker: Read and Write are of the bytes that the worker says and hears. One goroutine reads at a time,
// and without one that does [Stream.Send] has no answer.
type Stream struct {
	net.Conn
	in *bufio.Reader
	// left is what is unread of a chunk.
	left int
	// answers has a kind of chunk for each blob that was named.
	answers chan byte
	over    chan struct{}
	end     sync.Once

	writing sync.Mutex
	out     []byte
}

func newStream(conn net.Conn) *Stream {
	return &Stream{Conn: conn, in: bufio.NewReaderSize(conn, 16<<10), answers: make(chan byte, 1), over: make(chan struct{})}
}

// Read reads what the worker says.
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

// Write has the worker read p.
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

// Send has the worker get a blob, once all that was written before is on its way. When it returns, the content is needed no more. It waits for as long as the
// worker has too much that it has not read, but no longer than the connection lives.
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
		s.Close() // the other end waits for bytes that will not come
		return fmt.Errorf("send an object of %d bytes to a node: %w", b.Size, err)
	}
	return nil
}

// Close ends the way to the worker.
func (s *Stream) Close() error {
	s.end.Do(func() { close(s.over) })
	return s.Conn.Close()
}
