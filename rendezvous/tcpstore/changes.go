package tcpstore

// changes are the keys whose values proxies may have kept and must not use any more, the newest last. A key comes here once, unless it
// is deleted and made again: what has changed is not kept any more.
type changes struct {
	// version counts them. A proxy says which it has heard of.
	version uint64
	keys    []string
	bytes   int
	// most is how many are remembered.
	most int
}

const (
	// maxChanges and maxChangedBytes bound what is remembered, and so what a round says of it. Who missed more keeps nothing.
	maxChanges      = 256
	maxChangedBytes = 16 << 10
)

func (c *changes) add(key string) {
	c.version++
	c.keys = append(c.keys, key)
	for c.bytes += len(key); len(c.keys) > c.most || c.bytes > maxChangedBytes; c.keys = c.keys[1:] {
		c.bytes -= len(c.keys[0])
	}
}

// since are the keys that have changed since a version; all says that they are not known any more.
func (c *changes) since(version uint64) (keys []string, all bool) {
	n := c.version - version
	if n > uint64(len(c.keys)) {
		return nil, true
	}
	return c.keys[uint64(len(c.keys))-n:], false
}
