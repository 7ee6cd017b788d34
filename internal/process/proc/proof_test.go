package proc

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/guardian"
)

// connection returns the two ends of a connection.
func connection(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	accepted, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	must(t, accepted.SetReadDeadline(time.Now().Add(patience)))
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// startHolding makes a helper the only holder of one end of a connection.
func startHolding(t *testing.T, p plan, ours *net.TCPConn) (*killable, *output) {
	t.Helper()
	socket, err := ours.File()
	must(t, err)
	p.Hold = true
	h, out := startEverything(t, p, socket)
	must(t, errors.Join(socket.Close(), ours.Close()))
	return h, out
}

// proven reads everything until the end, which must be the proof, and closes the connection.
func proven(t *testing.T, peer *net.TCPConn, proof []byte) (before int) {
	t.Helper()
	said, err := io.ReadAll(peer)
	must(t, errors.Join(err, peer.Close()))
	if !bytes.HasSuffix(said, proof) {
		t.Fatalf("%d bytes without the proof", len(said))
	}
	return len(said) - len(proof)
}

// On a busy machine, peers in tests may be slow.
func init() { guardian.ProofLimit = time.Minute }

func TestProof(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		ours, peer := connection(t)
		h, out := startHolding(t, p, ours)
		_, err := peer.Write([]byte("it is not read"))
		must(t, err)
		h.kill(t)
		proof := make([]byte, len(h.proof))
		_, err = io.ReadFull(peer, proof)
		must(t, err)
		if n, err := unix.Poll([]unix.PollFd{{Fd: endFD(out), Events: unix.POLLIN}}, 0); err != nil || n != 1 {
			t.Error("the peer has the proof while a rank lives")
		}
		if _, err := peer.Write([]byte("it is not read either")); err != nil || !bytes.Equal(proof, h.proof) {
			t.Errorf("the proof is %x, want %x; then %v", proof, h.proof, err)
		}
		if before := proven(t, peer, nil); before != 0 {
			t.Errorf("%d bytes follow the proof", before)
		}
		out.end()
	})
}

// TestProofBehindAQueue: the proof comes after all data that was written. The peer reads late, and
// writes data itself meanwhile.
func TestProofBehindAQueue(t *testing.T) {
	ours, peer := connection(t)
	must(t, ours.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	queued := 0
	for {
		n, err := ours.Write(make([]byte, 64<<10))
		queued += n
		if err != nil {
			break
		}
	}
	h, out := startHolding(t, plan{}, ours)
	h.kill(t)
	out.end()
	for range 10 {
		_, err := peer.Write(make([]byte, 1000))
		must(t, err)
	}
	if before := proven(t, peer, h.proof); before != queued {
		t.Errorf("%d of %d bytes before the proof", before, queued)
	}
}

// TestProofByAnotherGuardian: a guardian that has replaced the first also gives the proof.
func TestProofByAnotherGuardian(t *testing.T) {
	ours, peer := connection(t)
	h, out := startHolding(t, plan{}, ours)
	must(t, unix.Kill(h.guardian, unix.SIGKILL))
	if _, err := h.words.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	h.kill(t)
	out.end()
	if before := proven(t, peer, h.proof); before != 0 {
		t.Errorf("%d bytes before the proof", before)
	}
}

// TestProofOfDeathForWantOfMemory: this proof is another text, whose hash is the usual proof. The
// guardian hears of the last renewal of the lease when its owner is dead.
func TestProofOfDeathForWantOfMemory(t *testing.T) {
	ours, peer := connection(t)
	socket, err := ours.File()
	must(t, err)
	out := newOutput(t)
	h := startHelper(t, plan{Script: "exec sleep 1000", Hold: true, Cgroup: memoryGroup(t), Eat: true}, out, socket)
	must(t, errors.Join(socket.Close(), ours.Close()))
	h.cmd.Wait()
	h.end.Signal(unix.SIGCONT)
	said, err := io.ReadAll(peer)
	must(t, errors.Join(err, peer.Close()))
	if sum := sha256.Sum256(said); !bytes.Equal(sum[:], h.proof) {
		t.Errorf("the connection ends with %x, whose hash is not %x", said, h.proof)
	}
	out.end()
	h.end.Await()
}

// TestNoProof: without a guardian, nothing gives the proof.
func TestNoProof(t *testing.T) {
	ours, peer := connection(t)
	socket, err := ours.File()
	must(t, err)
	out := newOutput(t)
	killBoth(t, plan{Script: "echo ready; exec sleep 1000", Hold: true}, out, socket)
	must(t, errors.Join(socket.Close(), ours.Close()))
	if before := proven(t, peer, nil); before != 0 {
		t.Errorf("%d bytes without a guardian", before)
	}
	out.end()
}

// TestProofOfClose: each held connection gets the proof.
func TestProofOfClose(t *testing.T) {
	s, err := New(Options{})
	must(t, err)
	proof := s.Proof()
	var held []*os.File
	var peers []*net.TCPConn
	for range 3 {
		ours, peer := connection(t)
		f, err := ours.File()
		must(t, err)
		defer f.Close()
		must(t, ours.Close())
		held, peers = append(held, f), append(peers, peer)
	}
	must(t, s.Hold(held...))
	must(t, s.Hold(held[1:]...))
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for _, peer := range peers[1:] {
		if before := proven(t, peer, proof[:]); before != 0 {
			t.Errorf("%d bytes before the proof", before)
		}
	}
	must(t, <-closed)
	must(t, peers[0].SetReadDeadline(time.Unix(1, 0)))
	if n, err := peers[0].Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one that is held no more reads %d bytes, %v", n, err)
	}
}
