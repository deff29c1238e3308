// Package s3 keeps objects in a bucket of Amazon S3, or of a server that speaks
// its protocol. A bucket that lists keys in the order of their bytes is needed:
// directory buckets (S3 Express) do not.
package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values"
)

// Config says where the bucket is. Bucket and Region are required.
type Config struct {
	// Endpoint is the URL of the server; "" is Amazon's.
	Endpoint, Region, Bucket string
	// Prefix begins the key of each object.
	Prefix string
	// PathStyle names the bucket in the path instead of the host.
	PathStyle bool
	// AccessKey and SecretKey say who asks; "" leaves that to the SDK's own chain.
	AccessKey string
	SecretKey parley.Secret
	// Encryption is what the server encrypts objects with: "" is its default, else
	// AES256 or aws:kms, with KMSKey if it is not the default one.
	Encryption, KMSKey string
}

// Store is a bucket, or what begins with a prefix in one. Several processes may
// share it.
type Store struct {
	cfg    Config
	client *s3.Client
}

// Open gives the store of a bucket. It asks nobody yet, but reads what the SDK
// finds in the environment.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Bucket == "" || cfg.Region == "" {
		return nil, parley.Errorf(parley.CodeInvalid, "values.store: s3 needs values.s3.bucket and values.s3.region")
	}
	if (cfg.AccessKey == "") != cfg.SecretKey.IsZero() {
		return nil, parley.Errorf(parley.CodeInvalid, "values.s3.access_key and values.s3.secret_key belong together")
	}
	load := []func(*config.LoadOptions) error{config.WithRegion(cfg.Region)}
	if cfg.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(cfg.AccessKey, string(cfg.SecretKey.Reveal()), ""),
		))
	}
	sdk, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "values.s3: the configuration of the AWS SDK: %w", err)
	}
	client := s3.NewFromConfig(sdk, func(o *s3.Options) {
		// Every mode of its log shows a payload or a signature.
		o.ClientLogMode, o.Logger = 0, logging.Nop{}
		o.UsePathStyle = cfg.PathStyle
		// The signature covers the bytes on their way, the name of an object its
		// content; not every server knows more checksums.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
		}
	})
	return &Store{cfg: cfg, client: client}, nil
}

// Put writes an object; the server has it when it answers.
func (s *Store) Put(ctx context.Context, name string, value []byte) error {
	if !values.Valid(name) {
		return fmt.Errorf("%q is no name of an object", name)
	}
	_, err := s.client.PutObject(ctx, s.object(name, value))
	return err
}

// object is what is asked for to write one.
func (s *Store) object(name string, value []byte) *s3.PutObjectInput {
	in := &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: aws.String(s.cfg.Prefix + name), Body: bytes.NewReader(value),
		ContentType: aws.String("application/octet-stream"), ServerSideEncryption: types.ServerSideEncryption(s.cfg.Encryption),
	}
	if s.cfg.KMSKey != "" {
		in.SSEKMSKeyId = &s.cfg.KMSKey
	}
	return in
}

// Get reads an object.
func (s *Store) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	if !values.Valid(name) {
		return nil, fmt.Errorf("%w: %q is no name of one", values.ErrGone, name)
	}
	return s.read(ctx, name, most)
}

func (s *Store) read(ctx context.Context, name string, most int64) (_ []byte, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.cfg.Bucket, Key: aws.String(s.cfg.Prefix + name)})
	if _, gone := errors.AsType[*types.NoSuchKey](err); gone {
		return nil, fmt.Errorf("%w: %s in bucket %s", values.ErrGone, s.cfg.Prefix+name, s.cfg.Bucket)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.Body.Close()) }()
	if n := aws.ToInt64(out.ContentLength); n > most {
		return nil, fmt.Errorf("%w: %s in bucket %s has %d bytes, not %d", values.ErrLonger, s.cfg.Prefix+name, s.cfg.Bucket, n, most)
	}
	var b bytes.Buffer
	b.Grow(int(min(max(aws.ToInt64(out.ContentLength), 0), most)) + bytes.MinRead)
	n, err := io.Copy(&b, io.LimitReader(out.Body, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("%w: %s in bucket %s has more than %d bytes", values.ErrLonger, s.cfg.Prefix+name, s.cfg.Bucket, most)
	}
	return b.Bytes(), err
}

// Delete removes an object.
func (s *Store) Delete(ctx context.Context, name string) error {
	if !values.Valid(name) {
		return nil // there is none
	}
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.cfg.Bucket, Key: aws.String(s.cfg.Prefix + name)})
	return err
}

// Mark gives the mark below the prefix.
func (s *Store) Mark(ctx context.Context, mark []byte) ([]byte, error) {
	held, err := s.read(ctx, values.MarkName, values.MostMark)
	if !errors.Is(err, values.ErrGone) {
		return held, err
	}
	if err := s.putFirst(ctx, values.MarkName, mark); err != nil {
		return nil, err
	}
	return s.read(ctx, values.MarkName, values.MostMark) // another process may have been faster
}

// putFirst writes an object unless one is there of that name, which is no error. Where
// the server knows no such condition, the last one who writes counts.
func (s *Store) putFirst(ctx context.Context, name string, value []byte) error {
	in := s.object(name, value)
	in.IfNoneMatch = aws.String("*")
	_, err := s.client.PutObject(ctx, in)
	said, _ := errors.AsType[*smithyhttp.ResponseError](err)
	if said == nil {
		return err
	}
	switch said.HTTPStatusCode() {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return nil
	case http.StatusNotImplemented, http.StatusBadRequest:
		_, err = s.client.PutObject(ctx, s.object(name, value))
	}
	return err
}

// MarkedAt is the key of the mark, and its bucket.
func (s *Store) MarkedAt() string {
	return s.cfg.Prefix + values.MarkName + " in bucket " + s.cfg.Bucket
}

// List gives objects in the order of their names. Other keys below the prefix are
// passed by.
func (s *Store) List(ctx context.Context, after string, limit int) (list []values.Object, err error) {
	in := &s3.ListObjectsV2Input{Bucket: &s.cfg.Bucket, Prefix: &s.cfg.Prefix}
	if after != "" {
		in.StartAfter = aws.String(s.cfg.Prefix + after)
	}
	for len(list) < limit {
		in.MaxKeys = aws.Int32(int32(min(limit-len(list), 1000)))
		page, err := s.client.ListObjectsV2(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			if name := strings.TrimPrefix(aws.ToString(o.Key), s.cfg.Prefix); values.Valid(name) && name > after {
				list = append(list, values.Object{Name: name, Size: aws.ToInt64(o.Size), At: aws.ToTime(o.LastModified)})
			}
		}
		if !aws.ToBool(page.IsTruncated) || page.NextContinuationToken == nil {
			break
		}
		in.ContinuationToken, in.StartAfter = page.NextContinuationToken, nil
	}
	return list, nil
}
