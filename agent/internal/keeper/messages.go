package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

const (
	// protocol changes if an older keeper could misunderstand a newer agent, or the reverse. An
	// addition does not change protocol: each side ignores unknown fields and news, and a keeper
	// answers an unknown order with an error.
	protocol = 2
	// maxMessage is larger than the arguments and the environment of a process in base64 (6 MiB,
	// execve(2)). It is also larger than a list of the clients of a store for 100,000 ranks (28 MB,
	// with keys of maxKey).
	maxMessage = 32 << 20
	// maxKey bounds the length of a key that a client of a store waits for. Such keys are shown to
	// people.
	maxKey = 128
	// maxPeers bounds the addresses in a message. A longer list takes several messages.
	maxPeers = 100_000
	// maxFiles bounds the files of a message.
	maxFiles = 8
	// sendLimit is how long a message may wait for a process that does not read.
	sendLimit = 5 * time.Second
)

// The agent's orders. Each order has an answer, except where its comment says "No answer". The
// keeper uses the same words to tell a new agent what it keeps.
const (
	doReady   = "ready"   // the last message of the keeper's welcome to an agent
	doJoined  = "joined"  // Data is the agent's membership; connections of earlier agents may end. No answer. From the keeper, it has the keeper's PID
	doProof   = "proof"   // from the keeper: Data is the Proof
	doPut     = "put"     // keep Data about Job. No answer
	doFile    = "file"    // keep a duplicate of a file until Job is over. No answer
	doDrop    = "drop"    // Job is over. No answer
	doHold    = "hold"    // hold a file with number ID until release. No answer
	doRelease = "release" // No answer
	doRenew   = "renew"   // the lease ends At by CLOCK_BOOTTIME; the keeper repeats it
	doScope   = "scope"   // make a scope called Name, with Data; the answer has its ID
	doStart   = "start"   // start a Command in scope ID, forked by Server, with Data. The Command's files come first, then the files to keep. The answer has its PID
	doServer  = "server"  // Server, at the connection in the message, forks the program in Data. No answer
	doUnserve = "unserve" // forget Server. No answer
	doExit    = "exit"    // PID of scope ID has ended
	doSignal  = "signal"  // Signal to scope ID. No answer
	doStop    = "stop"    // stop scope ID by Signal (SIGTERM when 0), unless the signal is Heard; At is the grace period
	doLinger  = "linger"  // wait until nothing of scope ID runs, at most for At; the answer has the Names of what still runs
	doRest    = "rest"    // ask leftover processes of scope ID to end; At is the grace period
	doKill    = "kill"
	doClose   = "close"
	doForget  = "forget"  // No answer
	doStore   = "store"   // serve Job's store at the listener in the message
	doProxy   = "proxy"   // serve a proxy of the store at Root at the listener in the message
	doEnded   = "ended"   // Job's store has ended by itself
	doAdmit   = "admit"   // Peers, as Own sees them, may use Job's store. No answer
	doBound   = "bound"   // Job's store takes Most clients. No answer
	doChanged = "changed" // the clients of Job's store have changed
	doStatus  = "status"  // the answer has the Clients of Job's store
	doUnstore = "unstore" // close Job's store
	doWarn    = "warn"    // Error is for people
	doEnd     = "end"     // kill all and end
)

// message is an order, an answer, or news.
type message struct {
	Do string
	// Seq numbers an order that has an answer. The answer has the same Seq.
	Seq     uint64   `json:",omitempty"`
	ID      int      `json:",omitempty"`
	Job     string   `json:",omitempty"`
	Name    string   `json:",omitempty"`
	Names   []string `json:",omitempty"`
	Data    []byte   `json:",omitempty"`
	Command *command `json:",omitempty"`
	Server  int      `json:",omitempty"`
	// ForkOnly is the field of [proc.Command].
	ForkOnly bool `json:",omitempty"`
	PID      int  `json:",omitempty"`
	// Forked says that Server made the process. Unforked says why it did not.
	Forked   bool   `json:",omitempty"`
	Unforked string `json:",omitempty"`
	// Broken says that the Server cannot fork any more.
	Broken  bool          `json:",omitempty"`
	Exit    *report.Exit  `json:",omitempty"`
	Ended   time.Time     `json:",omitzero"`
	At      time.Duration `json:",omitempty"`
	Signal  int           `json:",omitempty"`
	Heard   bool          `json:",omitempty"`
	Stopped bool          `json:",omitempty"`
	// Since is when scope ID was made.
	Since *procfs.Epoch `json:",omitempty"`
	Peers []netip.Addr  `json:",omitempty"`
	Own   netip.Addr    `json:",omitzero"`
	Most  int           `json:",omitempty"`
	// More says that further Peers follow.
	More    bool                    `json:",omitempty"`
	Store   netip.AddrPort          `json:",omitzero"`
	Root    netip.AddrPort          `json:",omitzero"`
	Clients []tcpstore.ClientStatus `json:",omitempty"`
	Error   string                  `json:",omitempty"`

	// from is the agent that sent the message. Only this agent gets the answer: another agent could
	// take it for the answer to an order of its own.
	from *link
}

func (m message) err() error {
	if m.Error == "" {
		return nil
	}
	return errors.New(m.Error)
}

// command is a [proc.Command] without its files. Its words are bytes because not all are UTF-8.
type command struct {
	Path, Dir []byte
	Args, Env [][]byte
	CPUs      []int
	Memory    *int
	Rights    *safefile.Rights
	Serves    bool
}

func fromCommand(c proc.Command) *command {
	return &command{[]byte(c.Path), []byte(c.Dir), toBytes(c.Args), toBytes(c.Env), c.CPUs, c.Memory, c.Rights, c.Serves}
}

func (c *command) command(stdin, stdout, stderr *os.File) proc.Command {
	return proc.Command{
		Path: string(c.Path), Dir: string(c.Dir), Args: toStrings(c.Args), Env: toStrings(c.Env), CPUs: c.CPUs, Memory: c.Memory, Rights: c.Rights,
		Stdin: stdin, Stdout: stdout, Stderr: stderr, Serves: c.Serves,
	}
}

func toBytes(words []string) [][]byte {
	out := make([][]byte, len(words))
	for i, w := range words {
		out[i] = []byte(w)
	}
	return out
}

func toStrings(words [][]byte) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

var errTooLong = errors.New("the message is too long")

// link is a connection between an agent and its keeper. Messages are JSON in frames.
type link struct {
	conn *net.UnixConn
	mu   sync.Mutex
}

func (l *link) send(m message, fds ...int) error {
	body, err := json.Marshal(m)
	if err == nil && len(body) > maxMessage {
		err = fmt.Errorf("%w: %d bytes, %d at most", errTooLong, len(body), maxMessage)
	}
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Do, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return err
	}
	return frame.Send(frame.Over(l.conn), body, fds...)
}

// receive returns a message and its files, which the caller must close.
func (l *link) receive() (m message, fds []int, err error) {
	body, fds, err := frame.Receive(frame.Over(l.conn), maxMessage, maxFiles)
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		frame.Close(fds)
		return m, nil, err
	}
	return m, fds, nil
}

// checkPeer fails unless the peer is this user's.
func checkPeer(conn *net.UnixConn) error {
	peer, err := safefile.Peer(conn)
	if err == nil && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("it belongs to uid %d, not to uid %d", peer.Uid, os.Geteuid())
	}
	return err
}
