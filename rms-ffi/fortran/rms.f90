! The functions of rms.h for Fortran 2003 and later: compile this file with your program.
!
! Every derived type begins with its size: say `x%size = c_sizeof(x)` before a call. Texts that are passed in end with
! c_null_char; texts that come out are read with rms_string and rms_name.
module rms
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int), parameter :: RMS_OK = 0, RMS_NOTHING = 1
  integer(c_int), parameter :: RMS_EINVAL = -1, RMS_ESESSION = -2, RMS_EFORK = -3, RMS_EPANIC = -4, RMS_EJOB = -5
  integer(c_int), parameter :: RMS_ECONNECT = -6, RMS_EREFUSED = -7, RMS_EUNKNOWN = -8, RMS_ESTATE = -9
  integer(c_int), parameter :: RMS_EENDED = -10, RMS_ESPACE = -11, RMS_EBUSY = -12, RMS_EIO = -13
  integer(c_int), parameter :: RMS_EVERSION = -14, RMS_ETIMEDOUT = -15

  integer(c_int32_t), parameter :: RMS_GROW = 1, RMS_SHRINK = 2, RMS_EXTEND = 3, RMS_SHORTEN = 4
  integer(c_int32_t), parameter :: RMS_MORE_CORES = 5, RMS_FEWER_CORES = 6
  integer(c_int32_t), parameter :: RMS_MORE_MEMORY = 7, RMS_LESS_MEMORY = 8
  integer(c_int32_t), parameter :: RMS_MORE_DEVICES = 9, RMS_FEWER_DEVICES = 10
  integer(c_int32_t), parameter :: RMS_MORE_LICENCES = 11, RMS_FEWER_LICENCES = 12
  integer(c_int32_t), parameter :: RMS_SIZES_ANY = 0, RMS_SIZES_MULTIPLE = 1
  integer(c_int32_t), parameter :: RMS_SIZES_POWER_OF_TWO = 2, RMS_SIZES_LISTED = 3
  integer(c_int32_t), parameter :: RMS_EVENT_OFFER = 1, RMS_EVENT_AGREED = 2, RMS_EVENT_READY = 3
  integer(c_int32_t), parameter :: RMS_EVENT_OVER = 4, RMS_EVENT_NODES = 5, RMS_EVENT_WARNING = 6
  integer(c_int32_t), parameter :: RMS_EVENT_ENDED = 7, RMS_EVENT_REPLACED = 8, RMS_EVENT_LOST = 9
  integer(c_int32_t), parameter :: RMS_EVENT_NODES_LOST = 10, RMS_EVENT_STAGE_ENDS = 11
  integer(c_int32_t), parameter :: RMS_REJECTED = 1, RMS_EXPIRED = 2, RMS_WITHDRAWN = 3, RMS_FAILED = 4
  integer, parameter :: RMS_NAME_SIZE = 256

  type, bind(c) :: rms_options
    integer(c_size_t) :: size = 0
    integer(c_int64_t) :: timeout_ms = 0
    integer(c_int32_t) :: survives_loss = 0, reserved = 0
  end type

  type, bind(c) :: rms_speedup_point
    integer(c_int32_t) :: nodes = 0, milli = 0
  end type

  type, bind(c) :: rms_limits
    integer(c_size_t) :: size = 0
    integer(c_int32_t) :: least = 0, most = 0, shape = 0, automatic = 0
    type(c_ptr) :: sizes = c_null_ptr
    integer(c_size_t) :: n_sizes = 0
    type(c_ptr) :: speedup = c_null_ptr
    integer(c_size_t) :: n_speedup = 0
  end type

  type, bind(c) :: rms_terms
    integer(c_size_t) :: size = 0
    integer(c_int32_t) :: kind = 0, shape = 0
    integer(c_int64_t) :: quantity = 0, least = 0
    type(c_ptr) :: sizes = c_null_ptr
    integer(c_size_t) :: n_sizes = 0
    integer(c_int64_t) :: price = 0, duration_ms = 0, deadline_ms = 0
    integer(c_int32_t) :: priority = 0, valid_s = 0
    type(c_ptr) :: cluster = c_null_ptr, nodes = c_null_ptr
    integer(c_size_t) :: n_nodes = 0
    type(c_ptr) :: name = c_null_ptr
  end type

  type, bind(c) :: rms_event
    integer(c_size_t) :: size = 0
    integer(c_int32_t) :: kind = 0, what = 0
    integer(c_int64_t) :: id = 0, quantity = 0, least = 0, most = 0, price = 0
    integer(c_int64_t) :: duration_ms = 0, deadline_ms = 0, give_back_by_ms = 0, valid_ms = 0
    integer(c_int32_t) :: round = 0, generation = 0, ending = 0, n_items = 0
    type(c_ptr) :: nodes = c_null_ptr
    integer(c_size_t) :: n_nodes = 0
    type(c_ptr) :: text = c_null_ptr
  end type

  type, bind(c) :: rms_node
    integer(c_size_t) :: size = 0
    integer(c_int32_t) :: node = 0, cpus = 0, is_departing = 0, is_coming = 0
    character(kind=c_char) :: name(RMS_NAME_SIZE) = c_null_char
    character(kind=c_char) :: address(RMS_NAME_SIZE) = c_null_char
    character(kind=c_char) :: cluster(RMS_NAME_SIZE) = c_null_char
  end type

  type, bind(c) :: rms_change
    integer(c_size_t) :: size = 0
    integer(c_int32_t) :: kind = 0, is_done = 0
    integer(c_int64_t) :: id = 0
    integer(c_int32_t) :: generation = 0, n_after = 0
    type(c_ptr) :: nodes = c_null_ptr
    integer(c_size_t) :: n_nodes = 0
  end type

  type, bind(c) :: rms_stage
    integer(c_size_t) :: size = 0
    integer(c_int32_t) :: number = 0, n_stages = 0, nodes = 0, next_nodes = 0
    integer(c_int64_t) :: until_ms = 0
  end type

  interface
    ! options: c_loc of rms_options, or c_null_ptr.
    integer(c_int) function rms_connect(options, session) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: session
    end function

    integer(c_int) function rms_close(session) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
    end function

    integer(c_int) function rms_generation(session, generation) bind(c)
      import :: c_int, c_int32_t, c_ptr
      type(c_ptr), value :: session
      integer(c_int32_t), intent(out) :: generation
    end function

    integer(c_int) function rms_until(session, until_ms) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: session
      integer(c_int64_t), intent(out) :: until_ms
    end function

    integer(c_int) function rms_next_stage(session, stage) bind(c)
      import :: c_int, c_ptr, rms_stage
      type(c_ptr), value :: session
      type(rms_stage), intent(inout) :: stage
    end function

    integer(c_int) function rms_nodes(session, nodes, capacity, n_nodes) bind(c)
      import :: c_int, c_ptr, c_size_t, rms_node
      type(c_ptr), value :: session
      type(rms_node), intent(inout) :: nodes(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: n_nodes
    end function

    ! path: c_loc of a text that ends with c_null_char, or c_null_ptr.
    integer(c_int) function rms_write_hostfile(session, path) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: session, path
    end function

    integer(c_int) function rms_declare(session, limits) bind(c)
      import :: c_int, c_ptr, rms_limits
      type(c_ptr), value :: session
      type(rms_limits), intent(in) :: limits
    end function

    integer(c_int) function rms_ask(session, terms, id) bind(c)
      import :: c_int, c_int64_t, c_ptr, rms_terms
      type(c_ptr), value :: session
      type(rms_terms), intent(in) :: terms
      integer(c_int64_t), intent(out) :: id
    end function

    integer(c_int) function rms_accept(session, id) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: session
      integer(c_int64_t), value :: id
    end function

    integer(c_int) function rms_counter(session, id, terms) bind(c)
      import :: c_int, c_int64_t, c_ptr, rms_terms
      type(c_ptr), value :: session
      integer(c_int64_t), value :: id
      type(rms_terms), intent(in) :: terms
    end function

    integer(c_int) function rms_reject(session, id) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: session
      integer(c_int64_t), value :: id
    end function

    integer(c_int) function rms_withdraw(session, id) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: session
      integer(c_int64_t), value :: id
    end function

    ! nodes: c_loc of an array of c_loc of texts; or c_null_ptr and 0.
    integer(c_int) function rms_release(session, id, nodes, n_nodes) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: session, nodes
      integer(c_int64_t), value :: id
      integer(c_size_t), value :: n_nodes
    end function

    integer(c_int) function rms_fd(session) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
    end function

    integer(c_int) function rms_next_event(session, timeout_ms, event) bind(c)
      import :: c_int, c_ptr, rms_event
      type(c_ptr), value :: session
      integer(c_int), value :: timeout_ms
      type(rms_event), intent(inout) :: event
    end function

    ! callback: c_funloc of a bind(c) subroutine, or c_null_funptr.
    integer(c_int) function rms_on_event(session, callback, user) bind(c)
      import :: c_funptr, c_int, c_ptr
      type(c_ptr), value :: session, user
      type(c_funptr), value :: callback
    end function

    integer(c_int) function rms_breakpoint(session, change) bind(c)
      import :: c_int, c_ptr, rms_change
      type(c_ptr), value :: session
      type(rms_change), intent(inout) :: change
    end function

    integer(c_int) function rms_release_done(session) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
    end function

    type(c_ptr) function rms_version() bind(c)
      import :: c_ptr
    end function

    type(c_ptr) function rms_strerror(status) bind(c)
      import :: c_int, c_ptr
      integer(c_int), value :: status
    end function

    integer(c_size_t) function rms_last_error(buffer, size) bind(c)
      import :: c_char, c_size_t
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function

    integer(c_size_t) function rms_id_text(id, buffer, size) bind(c)
      import :: c_char, c_int64_t, c_size_t
      integer(c_int64_t), value :: id
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function

    integer(c_size_t) function rms_c_strlen(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! A text of the library, such as event%text.
  function rms_string(text) result(string)
    type(c_ptr), intent(in) :: text
    character(len=:), allocatable :: string
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    string = ''
    if (.not. c_associated(text)) return
    call c_f_pointer(text, letters, [rms_c_strlen(text)])
    do i = 1, size(letters)
      string = string // letters(i)
    end do
  end function

  ! Name number i, from 1, of change%nodes or event%nodes.
  function rms_name(nodes, i) result(string)
    type(c_ptr), intent(in) :: nodes
    integer, intent(in) :: i
    character(len=:), allocatable :: string
    type(c_ptr), pointer :: names(:)
    call c_f_pointer(nodes, names, [i])
    string = rms_string(names(i))
  end function

  ! Why the latest call of this thread that failed did so.
  function rms_error_text() result(string)
    character(len=:), allocatable :: string
    character(kind=c_char), target :: buffer(1024)
    integer(c_size_t) :: n
    n = rms_last_error(buffer, size(buffer, kind=c_size_t))
    string = rms_string(c_loc(buffer))
  end function
end module
