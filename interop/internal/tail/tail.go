// Package tail keeps what a program has written last, for the test that asks why
// it failed.
package tail

import "sync"

// most is how much is kept, in bytes.
const most = 16 << 10

// Writer keeps the last 16 KiB of what is written to it. The zero value is ready.
// Any number of goroutines may use it.
type Writer struct {
	mu   sync.Mutex // protects text
	text []byte
}

// Write implements io.Writer; it never fails.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	w.text = w.text[max(0, len(w.text)-most):]
	return len(b), nil
}

// String gives what is kept.
func (w *Writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
