package jsonrpc

import "sync"

// maxPooledBuffer is the size, in bytes, above which a buffer is left to the
// garbage collector: one large message must not be paid for ever after.
const maxPooledBuffer = 1 << 20

// A buffer is borrowed from buffers for the time of one call or request.
type buffer struct{ b []byte }

// buffers lends out buffers (RPC-18). The zero value is ready to use.
type buffers struct{ pool sync.Pool }

func (p *buffers) get() *buffer {
	if b, ok := p.pool.Get().(*buffer); ok {
		return b
	}
	return new(buffer)
}

func (p *buffers) put(b *buffer) {
	if b == nil || cap(b.b) > maxPooledBuffer {
		return
	}
	if poison {
		overwrite(b.b[:cap(b.b)])
	}
	b.b = b.b[:0]
	p.pool.Put(b)
}
