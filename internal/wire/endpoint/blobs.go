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

// Blobs that no delivery uses are kept for later workers, for restLimit after the last use. Beyond
// restBytes or restCount the oldest are dropped, but never the newest, which may have any size.
const (
	restLimit = 10 * time.Second
	restBytes = 64 << 20
	restCount = 64
)

// blobs are the blobs that controllers have sent to this node for several workers. Each is in
// memory that all these workers can map.
//
// A blob arrives on the connection of the first worker that gets it, once all earlier messages
// there have been delivered. So no worker waits for another worker that does not read. The blob
// stays while a delivery uses it, and then rests until all workers of its key have had it. If a
// worker is far behind the others, the blob may be dropped before that worker has had it. It is
// then sent again on the connection of that worker. So restLimit affects nothing but traffic.
type blobs struct {
	mu sync.Mutex
	// expected is the number of workers that will connect.
	expected int
	// deliveries are the deliveries under way, by key.
	deliveries map[string]map[*delivery]bool
	all        map[name]*blob
	// resting are the blobs that no delivery uses, the oldest first.
	resting []*blob
	bytes   int64
}

// name identifies a blob. Controllers with different keys have different blobs.
type name struct {
	key string
	id  ID
}

// blob is a blob. Its content is in the memory of file once it has arrived.
type blob struct {
	name
	size int64
	// pins counts the deliveries that use the blob. had are the deliveries of its key that have
	// passed it on.
	pins int
	had  map[*delivery]bool
	file *os.File
	// coming is closed when the blob has arrived, or has failed to; nil when no delivery fetches
	// it.
	coming chan struct{}
	// timer ends the blob's rest.
	timer *time.Timer
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

// leave ends a delivery that has no pins any more.
func (b *blobs) leave(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.deliveries[d.key], d)
	for _, x := range slices.Clone(b.resting) {
		if x.key == d.key {
			b.rest(x)
		}
	}
	if len(b.deliveries[d.key]) == 0 {
		delete(b.deliveries, d.key)
	}
}

// pin keeps a blob until unpin, whether it is here or arrives later.
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
	b.endRest(x)
	x.pins++
	return x, nil
}

// unpin releases a blob. had says that the delivery's worker has received the blob.
func (b *blobs) unpin(d *delivery, x *blob, had bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.pins--; had {
		x.had[d] = true
	}
	b.rest(x)
	for len(b.resting) > restCount || b.bytes > restBytes && len(b.resting) > 1 {
		b.drop(b.resting[0])
	}
}

// rest drops an unpinned blob that no worker needs any more, and otherwise keeps it.
func (b *blobs) rest(x *blob) {
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
	case x.timer == nil:
		b.resting, b.bytes = append(b.resting, x), b.bytes+x.size
		var rest *time.Timer
		rest = time.AfterFunc(restLimit, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if x.timer == rest {
				b.drop(x)
			}
		})
		x.timer = rest
	}
}

// endRest ends the rest of a blob.
func (b *blobs) endRest(x *blob) {
	if x.timer != nil {
		x.timer.Stop()
		x.timer = nil
		b.resting, b.bytes = slices.DeleteFunc(b.resting, func(y *blob) bool { return y == x }), b.bytes-x.size
	}
}

func (b *blobs) drop(x *blob) {
	b.endRest(x)
	delete(b.all, x.name)
	if x.file != nil {
		x.file.Close()
		x.file = nil
	}
}

// clear drops all blobs at the end, when no delivery is under way.
func (b *blobs) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.resting) > 0 {
		b.drop(b.resting[0])
	}
}

// fill waits until a pinned blob is here. One of the waiting deliveries fetches the blob. If the
// fetch fails, that delivery ends, and the next one fetches the blob.
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

// newMemory returns a file without a name.
func newMemory() (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("golaunch-blob", flags|unix.MFD_NOEXEC_SEAL) // sysctl vm.memfd_noexec may require it
	if errors.Is(err, unix.EINVAL) {                                         // before Linux 6.3
		fd, err = unix.MemfdCreate("golaunch-blob", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), "blob"), nil
}

// seal makes the content of a file immutable for all that have a descriptor of it.
func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	return err
}
