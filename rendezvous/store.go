package rendezvous

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/job"
)

// Store keeps, in a directory, what the coordinator of a cluster must know to take its jobs over when it is started again: its
// epoch and a journal for each job.
type Store struct {
	root *os.Root
	lock *os.File
}

// storeFormat changes when the same events would no longer give the same state.
const storeFormat = "golaunch-store-2"

// OpenStore opens the store in a directory, which it makes at first use, mode 0700. The error says so when another coordinator
// has it open, or when another version of golaunch wrote it.
func OpenStore(dir string) (*Store, error) {
	fail := func(err error) (*Store, error) {
		return nil, fmt.Errorf("cannot open the coordinator's store %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	s := &Store{root: root}
	if err := s.open(); err != nil {
		return fail(errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.lock, err = s.root.OpenFile("lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errors.New("another coordinator uses it; stop that one, or give this one a directory of its own with --state-dir")
		}
		return fmt.Errorf("cannot lock it: %w", err)
	}
	_, err = s.epoch()
	return err
}

// Close lets another coordinator have the store.
func (s *Store) Close() error {
	var err error
	if s.lock != nil {
		err = s.lock.Close()
	}
	return errors.Join(err, s.root.Close())
}

// epoch is the same for all coordinators that use the store, one after the other.
func (s *Store) epoch() (string, error) {
	text, err := s.root.ReadFile("epoch")
	if errors.Is(err, fs.ErrNotExist) {
		epoch := rand.Text()
		return epoch, s.keep("epoch", []byte(storeFormat+" "+epoch+"\n"))
	}
	if err != nil {
		return "", err
	}
	format, epoch, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if format != storeFormat || epoch == "" {
		return "", fmt.Errorf("%q is not this golaunch's format (%s); use the version that wrote it, or another --state-dir", format, storeFormat)
	}
	return epoch, nil
}

// drained are the nodes that the coordinator kept: a name on each line.
func (s *Store) drained() (map[string]bool, error) {
	nodes := map[string]bool{}
	text, err := s.root.ReadFile("drained")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for name := range strings.FieldsSeq(string(text)) {
		nodes[name] = true
	}
	return nodes, nil
}

// avoided are the nodes that the coordinator kept.
func (s *Store) avoided() (nodes map[string]avoidance, err error) {
	text, err := s.root.ReadFile("avoided")
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return nodes, strict(text, &nodes)
}

// keep writes a file so that it is the old or the new one, whenever the machine loses its power.
func (s *Store) keep(name string, text []byte) error {
	if s == nil {
		return nil
	}
	f, err := s.root.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(s.root.Rename(name+".new", name), s.sync())
}

const journalSuffix = ".job.jsonl"

// create begins the journal of a job, from any goroutine.
func (s *Store) create(r Submission, at time.Time, d *disk) (journal, error) {
	if s == nil {
		return noJournal{}, nil
	}
	f, err := s.root.OpenFile(r.Job.ID+journalSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot begin the journal of job %s: %w", r.Job.ID, err)
	}
	j := s.journal(f, 0, r.Job.ID, d)
	if err := j.write(entry{Time: at, Event: eventSubmission, Detail: r}); err != nil {
		j.discard()
		return nil, fmt.Errorf("cannot write the journal of job %s: %w", r.Job.ID, err)
	}
	return j, nil
}

// journal goes on with one. It is removed when it ends before its job, which a later coordinator would take for what it no longer is.
func (s *Store) journal(f *os.File, size int, id string, d *disk) *diskJournal {
	return &diskJournal{
		disk: d, out: writer{f, size},
		failed: func(err error) {
			d.warn(fmt.Errorf("the journal of job %s ends here: %w; the job goes on, but ends with this coordinator", id, err))
		},
		sync: func() error { return errors.Join(f.Sync(), s.sync()) },
		shut: func() { _ = f.Close() }, // every write was checked
		remove: func() {
			if err := s.remove(id); err != nil {
				d.warn(err)
			}
		},
	}
}

// sync has the disk keep the names of the files.
func (s *Store) sync() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (s *Store) remove(id string) error {
	if s == nil {
		return nil
	}
	if err := s.root.Remove(id + journalSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the journal of job %s: %w", id, err)
	}
	return nil
}

// saved is a job as its journal has it.
type saved struct {
	Submission
	submitted, over time.Time
	events          []job.Event
	times           []time.Time
	reason          string
	result          *job.Result
	journal         journal
}

// load reads all journals, in the order of submission. What cannot be read at the end of one is cut off, and a journal without a
// beginning is put aside; people hear of both.
func (s *Store) load(d *disk) ([]saved, error) {
	names, err := fs.Glob(s.root.FS(), "*"+journalSuffix)
	if err != nil {
		return nil, err
	}
	var all []saved
	for _, name := range names {
		j, err := s.read(name, d)
		switch {
		case err == nil:
			all = append(all, j)
		case errors.Is(err, errHeadless):
			d.warn(fmt.Errorf("%s: %w; its job is forgotten, and the file is now %s.unreadable", s.path(name), err, name))
			if err := s.root.Rename(name, name+".unreadable"); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b saved) int {
		return cmp.Or(a.submitted.Compare(b.submitted), cmp.Compare(a.Job.ID, b.Job.ID))
	})
	return all, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.root.Name(), name) }

var errHeadless = errors.New("the journal does not begin with a job")

func (s *Store) read(name string, d *disk) (saved, error) {
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return saved{}, err
	}
	var j saved
	good, err := j.read(f)
	if err == nil && j.Job.ID+journalSuffix != name {
		err = errHeadless
	}
	if err != nil {
		return saved{}, errors.Join(err, f.Close())
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size > good {
		d.warn(fmt.Errorf("%s: the last %d bytes are torn or garbled and were cut off; the agents say what is missing", s.path(name), size-good))
		err = f.Truncate(good)
	}
	if err != nil {
		return saved{}, errors.Join(err, f.Close())
	}
	j.journal = s.journal(f, int(good), j.Job.ID, d)
	return j, nil
}

// read takes lines for as long as they make sense, and returns how many bytes those are.
func (j *saved) read(r io.Reader) (good int64, err error) {
	lines := bufio.NewReader(io.LimitReader(r, maxJournal))
	for {
		text, err := lines.ReadBytes('\n')
		if err == nil {
			err = j.take(text)
		}
		switch {
		case err == nil:
			good += int64(len(text))
		case good == 0:
			return 0, errHeadless
		default:
			return good, nil
		}
	}
}

// take adds one line.
func (j *saved) take(text []byte) error {
	var l struct {
		Time   time.Time       `json:"time"`
		Event  string          `json:"event"`
		Reason string          `json:"reason"`
		Detail json.RawMessage `json:"detail"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if l.Time.IsZero() || j.submitted.IsZero() != (l.Event == eventSubmission) || j.result != nil {
		return errors.New("a line out of place")
	}
	j.reason = cmp.Or(l.Reason, j.reason)
	switch l.Event {
	case eventSubmission:
		j.submitted = l.Time
		return strict(l.Detail, &j.Submission)
	case eventResult:
		var r job.Result
		if err := strict(l.Detail, &r); err != nil {
			return err
		}
		j.over, j.result = l.Time, &r
		return nil
	}
	decode, ok := eventTypes[l.Event]
	if !ok {
		return fmt.Errorf("no event %q", l.Event)
	}
	ev, err := decode(l.Detail)
	if err == nil {
		j.events, j.times = append(j.events, ev), append(j.times, l.Time)
	}
	return err
}

// eventTypes read the events of a job by their names.
var eventTypes = func() map[string]func([]byte) (job.Event, error) {
	types := map[string]func([]byte) (job.Event, error){}
	addType[job.Submitted](types)
	addType[job.Queued](types)
	addType[job.Joined](types)
	addType[job.Lost](types)
	addType[job.Rejoined](types)
	addType[job.Draining](types)
	addType[job.Ready](types)
	addType[job.Prepared](types)
	addType[job.Reached](types)
	addType[job.Started](types)
	addType[job.Met](types)
	addType[job.Stalled](types)
	addType[job.Stepped](types)
	addType[job.Exited](types)
	addType[job.Stopped](types)
	addType[job.Elapsed](types)
	addType[job.TimedOut](types)
	addType[job.Cancel](types)
	return types
}()

func addType[T job.Event](types map[string]func([]byte) (job.Event, error)) {
	var none T
	types[eventName(none)] = func(b []byte) (job.Event, error) {
		var ev T
		err := strict(b, &ev)
		return ev, err
	}
}

// strict refuses what this version would not have written.
func strict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
