package endpoint

// Held is the size of all blobs that are here.
func (e *Endpoint) Held() (total int64) {
	e.blobs.mu.Lock()
	defer e.blobs.mu.Unlock()
	for _, x := range e.blobs.all {
		if x.file != nil {
			total += x.size
		}
	}
	return total
}
