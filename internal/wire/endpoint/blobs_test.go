package endpoint

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errGone = errors.New("gone")

// deliveries returns deliveries of one key that have joined.
func deliveries(b *blobs, key string, n int) (all []*delivery) {
	for range n {
		d := &delivery{key: key, over: make(chan struct{})}
		b.join(d)
		all = append(all, d)
	}
	return all
}

// have delivers a blob, and returns whether the blob was here already.
func have(t *testing.T, b *blobs, d *delivery, id uint64, size int64) (here bool) {
	t.Helper()
	x, err := b.pin(d, ID{id}, size)
	if err == nil {
		here, err = b.fill(d, x, func(*os.File) error { return nil })
		if x.file == nil {
			t.Error("it is not here")
		}
		b.unpin(d, x, err == nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return here
}

// held returns the IDs of the blobs here.
func held(b *blobs) (ids []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.all {
		ids = append(ids, n.id[0])
	}
	slices.Sort(ids)
	return ids
}

func TestABlobRestsUntilAllHaveHadIt(t *testing.T) {
	var b blobs
	d, other := deliveries(&b, "a", 3), deliveries(&b, "b", 1)[0]
	for i, want := range []bool{false, true, true} {
		if got := held(&b); len(got) != min(i, 1) {
			t.Errorf("%v is held when %d have had it", got, i)
		}
		if here := have(t, &b, d[i], 7, 1); here != want {
			t.Errorf("delivery %d finds it: %v", i, here)
		}
	}
	if got := held(&b); len(got) > 0 {
		t.Errorf("%v is held when all have had it", got)
	}
	have(t, &b, d[0], 8, 1)
	if have(t, &b, other, 8, 2) {
		t.Error("another key has it")
	}
	if _, err := b.pin(d[1], ID{8}, 3); err == nil {
		t.Error("it has two sizes")
	}
	have(t, &b, d[1], 8, 1)
	b.leave(d[2])
	if got := held(&b); len(got) > 0 {
		t.Errorf("%v is held after all remaining workers have had it", got)
	}
	have(t, &b, d[0], 9, 1)
	b.leave(d[0])
	b.leave(d[1])
	b.leave(other)
	if len(held(&b)) > 0 || len(b.resting) > 0 || b.bytes != 0 || len(b.deliveries) > 0 {
		t.Errorf("at the end there are %v, %d bytes, %v", held(&b), b.bytes, b.deliveries)
	}
}

// TestLaterWorkersGetTheBlob checks that later workers get the blobs of earlier ones, such as the
// arguments that make all workers of a group.
func TestLaterWorkersGetTheBlob(t *testing.T) {
	b := blobs{expected: 2}
	first := deliveries(&b, "a", 1)[0]
	have(t, &b, first, 1, 1)
	b.leave(first)
	d := deliveries(&b, "a", 1)
	if !have(t, &b, d[0], 1, 1) {
		t.Error("it has gone with the first")
	}
	d = append(d, deliveries(&b, "a", 1)...)
	if !have(t, &b, d[1], 1, 1) {
		t.Error("it has gone before all were there")
	}
	if got := held(&b); len(got) > 0 {
		t.Errorf("%v is held when all have had it", got)
	}
	have(t, &b, d[0], 2, 1)
	b.leave(d[0])
	b.leave(d[1])
	b.clear()
	if len(held(&b)) > 0 || len(b.resting) > 0 || b.bytes != 0 {
		t.Errorf("at the end there are %v, %d bytes", held(&b), b.bytes)
	}
}

func TestWhatRestsIsBounded(t *testing.T) {
	var b blobs
	d := deliveries(&b, "a", 2)
	for i := range uint64(restCount + 10) {
		have(t, &b, d[0], i, 1)
	}
	if got := held(&b); len(got) != restCount || got[0] != 10 {
		t.Errorf("%d are held, the first %v", len(got), got[0])
	}
	have(t, &b, d[0], 100, restBytes)
	have(t, &b, d[0], 101, 3*restBytes)
	if got := held(&b); !slices.Equal(got, []uint64{101}) || b.bytes != 3*restBytes {
		t.Errorf("%v are held, %d bytes", got, b.bytes)
	}
	// A blob that a delivery uses stays.
	x, err := b.pin(d[1], ID{101}, 3*restBytes)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		have(t, &b, d[0], 200+i, restBytes)
	}
	if got := held(&b); !slices.Equal(got, []uint64{101, 202}) || b.bytes != restBytes {
		t.Errorf("%v are held, %d bytes at rest", got, b.bytes)
	}
	b.unpin(d[1], x, true)
	if got := held(&b); !slices.Equal(got, []uint64{202}) {
		t.Errorf("%v are held when both have had 101", got)
	}
	for _, d := range d {
		b.leave(d)
	}
}

func TestRestHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b blobs
		d := deliveries(&b, "a", 3)
		have(t, &b, d[0], 1, 1)
		time.Sleep(restLimit - time.Second)
		if !have(t, &b, d[1], 1, 1) {
			t.Error("it has gone too soon")
		}
		time.Sleep(restLimit - time.Second)
		synctest.Wait()
		if len(held(&b)) != 1 {
			t.Error("its rest has begun anew, and ended too soon")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(held(&b)) > 0 {
			t.Error("it rests for ever")
		}
		if have(t, &b, d[2], 1, 1) {
			t.Error("it is here")
		}
		for _, d := range d {
			b.leave(d)
		}
	})
}

// TestOneDeliveryFetches checks that other deliveries wait for the first delivery and, if it fails,
// for the next.
func TestOneDeliveryFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b blobs
		d := deliveries(&b, "a", 5)
		var mu sync.Mutex
		came, fetched, waits, gone := 0, 0, 0, 0
		for i, d := range d {
			go func() {
				x, err := b.pin(d, ID{1}, 1)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = b.fill(d, x, func(*os.File) error {
					mu.Lock()
					fetched++
					n := fetched
					mu.Unlock()
					time.Sleep(time.Second)
					if n < 3 {
						return errGone
					}
					return nil
				})
				b.unpin(d, x, err == nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					came++
				case errors.Is(err, errGone):
					gone++
					b.leave(d)
				default:
					waits++
					b.leave(d)
				}
			}()
			synctest.Wait()
			if i == 4 {
				close(d.over) // it waits, and its worker is gone
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if fetched != 3 || gone != 2 || came != 2 || waits != 1 || len(held(&b)) > 0 {
			t.Errorf("%d waited for it, %d of them failed; %d have it, %d have left; %v is held", fetched, gone, came, waits, held(&b))
		}
	})
}
