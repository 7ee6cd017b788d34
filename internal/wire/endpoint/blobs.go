package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Blobs that nobody is at any more rest here for those who come to them later, for restLimit after the last one had them. Of more than restBytes, or restCount, those go that
// rest for longest, but for the newest, which may have any size.
const (
	restLimit = 10 * time.Second
	restBytes = 64 << 20
	restCount = 64
)

// blobs are what controllers have sent to this node for several workers, each in memory that they can all map.
//
// A blob comes on the connection of the first worker that is to get it, when all that was said before has been delivered there: no worker that does not
// read is waited for by another. It is here for as long as a delivery is at it, and rests then until all workers of its key have had it. What has gone too soon, because a
// worker is far behind the others, comes again on that one's connection: how long blobs rest decides on traffic, and on nothing else.
type blobs struct {
	mu sync.Mutex
	// expected is how many workers there are to be.
	expected int
	// deliveries are those that go on, by key.
	deliveries map[string]map[*delivery]bool
	all        map[name]*blob
	// resting are at no delivery, in the order in which they came to rest.
	resting []*blob
	bytes   int64
}

// name is a blob's: a controller with another key has others.
type name struct {
	key string
	id  ID
}

// blob is in the memory of file once it has come.
type blob struct {
	name
	size int64
	// pins counts the deliveries that are at it, and had are those of its key that are past it.
	pins int
	had  map[*delivery]bool
	file *os.File
	// coming is closed when what comes now is here, or has failed; nil when nothing comes.
	coming chan struct{}
	// rest ends it.
	rest *time.Timer
}

func (b *blobs) join(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deliveries == nil {
		b.deliveries, b.all = map[string]map[*delivery]bool{}, map[name]*blob{}
	}
	if b.deliveries[d.key] == nil {
		b.deliveries[d.key] = map[*delivery]bool{}
	}
	b.deliveries[d.key][d] = true
}

// leave is the end of a delivery, which has no pin any more.
func (b *blobs) leave(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.deliveries[d.key], d)
	for _, x := range slices.Clone(b.resting) {
		if x.key == d.key {
			b.look(x)
		}
	}
	if len(b.deliveries[d.key]) == 0 {
		delete(b.deliveries, d.key)
	}
}

// pin keeps a blob until unpin, if it is here, or comes meanwhile.
func (b *blobs) pin(d *delivery, id ID, size int64) (*blob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.all[name{d.key, id}]
	if x == nil {
		x = &blob{name: name{d.key, id}, size: size, had: map[*delivery]bool{}}
		b.all[x.name] = x
	}
	if x.size != size {
		return nil, errChunk
	}
	b.wake(x)
	x.pins++
	return x, nil
}

// unpin lets go of a blob. had says that the worker has it.
func (b *blobs) unpin(d *delivery, x *blob, had bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.pins--; had {
		x.had[d] = true
	}
	b.look(x)
	for len(b.resting) > restCount || b.bytes > restBytes && len(b.resting) > 1 {
		b.drop(b.resting[0])
	}
}

// look decides whether a blob is still of use, and has it rest if that is so and no delivery is at it.
func (b *blobs) look(x *blob) {
	if x.pins > 0 {
		return
	}
	wanted := len(b.deliveries[x.key]) < b.expected
	for d := range b.deliveries[x.key] {
		wanted = wanted || !x.had[d]
	}
	switch {
	case x.file == nil || !wanted:
		b.drop(x)
	case x.rest == nil:
		b.resting, b.bytes = append(b.resting, x), b.bytes+x.size
		var rest *time.Timer
		rest = time.AfterFunc(restLimit, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if x.rest == rest {
				b.drop(x)
			}
		})
		x.rest = rest
	}
}

// wake ends the rest of a blob.
func (b *blobs) wake(x *blob) {
	if x.rest != nil {
		x.rest.Stop()
		x.rest = nil
		b.resting, b.bytes = slices.DeleteFunc(b.resting, func(y *blob) bool { return y == x }), b.bytes-x.size
	}
}

func (b *blobs) drop(x *blob) {
	b.wake(x)
	delete(b.all, x.name)
	if x.file != nil {
		x.file.Close()
		x.file = nil
	}
}

// clear is the end, when no delivery goes on.
func (b *blobs) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.resting) > 0 {
		b.drop(b.resting[0])
	}
}

// fill waits until a blob that is pinned is here. Of those who wait one has it come; if that fails, it ends, and the next one does.
func (b *blobs) fill(d *delivery, x *blob, come func(*os.File) error) (had bool, err error) {
	for {
		b.mu.Lock()
		coming := x.coming
		switch {
		case x.file != nil:
			b.mu.Unlock()
			return true, nil
		case coming == nil:
			x.coming = make(chan struct{})
			b.mu.Unlock()
			f, err := d.receive(x.size, come)
			b.mu.Lock()
			x.file = f
			close(x.coming)
			x.coming = nil
			b.mu.Unlock()
			return false, err
		}
		b.mu.Unlock()
		select {
		case <-coming:
		case <-d.over:
			return false, net.ErrClosed
		}
	}
}

// newMemory is a file without a name.
func newMemory() (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("golaunch-blob", flags|unix.MFD_NOEXEC_SEAL) // which sysctl vm.memfd_noexec may demand
	if errors.Is(err, unix.EINVAL) {                                         // before Linux 6.3
		fd, err = unix.MemfdCreate("golaunch-blob", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), "blob"), nil
}

// seal keeps a file as it is, whoever has a descriptor of it.
func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	return err
}
