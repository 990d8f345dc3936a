(* Theorem 3 of DGA, for the Hessian by the attention weights: grouping does not raise its condition number.

   Problem 1 minimises |V^T alpha - y|^2 over alpha in R^L, so its Hessian is H = 2 V V^T, L x L. Grouping replaces V by
   the means M V, so the Hessian of Problem 2 is 2 M V V^T M^T = M H M^T, k x k. All vectors are columns. *)

From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* v^T A v and |v|^2, as numbers. *)
Definition form (R : realFieldType) (n : nat) (A : 'M[R]_n) (v : 'cV[R]_n) : R := (v^T *m A *m v) 0 0.

Definition square (R : realFieldType) (n : nat) (v : 'cV[R]_n) : R := (v^T *m v) 0 0.

(* low |v|^2 <= v^T A v <= high |v|^2, for all v. *)
Definition between (R : realFieldType) (n : nat) (low high : R) (A : 'M[R]_n) : Prop :=
  forall v, low * square v <= form A v <= high * square v.

(* The smallest and the largest value of v^T A v / |v|^2; for a symmetric A these are its extreme eigenvalues. *)
Definition smallest (R : realFieldType) (n : nat) (A : 'M[R]_n) (low : R) : Prop :=
  (forall v, low * square v <= form A v) /\ exists2 v, v != 0 & form A v = low * square v.

Definition greatest (R : realFieldType) (n : nat) (A : 'M[R]_n) (high : R) : Prop :=
  (forall v, form A v <= high * square v) /\ exists2 v, v != 0 & form A v = high * square v.

Definition eigen (R : realFieldType) (n : nat) (A : 'M[R]_n) (a : R) : Prop :=
  exists2 v : 'cV[R]_n, v != 0 & A *m v = a *: v.

(* Row g averages the tokens j with group j = g. *)
Definition averaging (R : realFieldType) (L k m : nat) (group : 'I_L -> 'I_k) : 'M[R]_(k, L) :=
  \matrix_(g, j) (if group j == g then m%:R^-1 else 0).

Definition hessian (R : realFieldType) (L d : nat) (V : 'M[R]_(L, d)) : 'M[R]_L := 2%:R *: (V *m V^T).

Section Forms.

Variables (R : realFieldType) (n : nat).
Implicit Types (A : 'M[R]_n) (v w : 'cV[R]_n).

Lemma square_sum v : square v = \sum_i v i 0 ^+ 2.
Proof. by rewrite /square mxE; apply: eq_bigr => i _; rewrite mxE expr2. Qed.

Lemma square_ge0 v : 0 <= square v.
Proof. by rewrite square_sum sumr_ge0 // => i _; apply: sqr_ge0. Qed.

Lemma square_gt0 v : v != 0 -> 0 < square v.
Proof.
move=> nonzero; rewrite lt_def square_ge0 andbT; apply: contra nonzero; rewrite square_sum.
rewrite psumr_eq0 => [/allP zero|i _]; last exact: sqr_ge0.
apply/eqP/colP => i; rewrite mxE; apply/eqP; rewrite -sqrf_eq0.
exact: zero (mem_index_enum i).
Qed.

(* An eigenvalue is the value of a Rayleigh quotient, so it lies between their bounds. *)
Lemma form_eigen A a v : A *m v = a *: v -> form A v = a * square v.
Proof. by rewrite /form /square -mulmxA => ->; rewrite -scalemxAr mxE. Qed.

Lemma eigen_between A low high a : between low high A -> eigen A a -> low <= a <= high.
Proof.
move=> bounds [v nonzero /form_eigen value].
by have := bounds v; rewrite value !ler_pmul2r ?square_gt0.
Qed.

Lemma form_scalar (a : R) v : form a%:M v = a * square v.
Proof. by apply: form_eigen; rewrite mul_scalar_mx. Qed.

Lemma form_sub A B v : form (A - B) v = form A v - form B v.
Proof. by rewrite /form mulmxBr mulmxBl !mxE. Qed.

Lemma negative_somewhere (s c : R) : 0 < s -> 0 <= c -> exists t, 2%:R * t * s + t ^+ 2 * c < 0.
Proof.
move=> s_gt0 c_ge0; have c1_gt0 : 0 < c + 1 by rewrite ltr_spaddr ?ltr01.
have [r r_gt0 ->] : exists2 r, 0 < r & s = r * (c + 1).
  by exists (s / (c + 1)); [rewrite divr_gt0 | rewrite divfK // gt_eqF].
exists (- r); have -> : 2%:R * - r * (r * (c + 1)) + (- r) ^+ 2 * c = - (r ^+ 2 * (c + 1 + 1)).
  have -> : c + 1 + 1 = 2%:R * (c + 1) - c by rewrite mulr_natl mulr2n -[RHS]addrA [c + 1 - c]addrAC subrr add0r.
  by rewrite sqrrN mulrBr opprB mulrN mulNr addrC -!mulrA !(mulrCA 2%:R r).
by rewrite oppr_lt0 mulr_gt0 ?exprn_gt0 // addr_gt0 ?ltr01.
Qed.

(* Where a symmetric form that is never negative is 0, its matrix gives 0. *)
Lemma form_null A v : A^T = A -> (forall w, 0 <= form A w) -> form A v = 0 -> A *m v = 0.
Proof.
move=> symmetric form_ge0 null; apply/eqP; apply: contraT => /square_gt0.
set w := A *m v; set s := square w; set c := form A w => s_gt0.
have along t : form A (v + t *: w) = 2%:R * t * s + t ^+ 2 * c.
  have left : v^T *m A *m w = w^T *m w by rewrite -[A in v^T *m A]symmetric -trmx_mul.
  have right : w^T *m A *m v = w^T *m w by rewrite -mulmxA.
  rewrite /form [(v + _)^T]linearD /= [(t *: w)^T]linearZ /= !mulmxDl !mulmxDr -!scalemxAl -!scalemxAr left right.
  have plus (x y : 'M[R]_1) : (x + y) 0 0 = x 0 0 + y 0 0 by rewrite mxE.
  have times (x : 'M[R]_1) : (t *: x) 0 0 = t * x 0 0 by rewrite mxE.
  rewrite !plus !times.
  rewrite -/(form A v) -/(form A w) -/(square w) -/s -/c null add0r.
  by rewrite addrA -mulr2n -[_ *+ 2 in LHS]mulr_natl !mulrA expr2.
have [t] := negative_somewhere s_gt0 (form_ge0 w).
by rewrite -along ltNge form_ge0.
Qed.

(* So, for a symmetric matrix, the extreme values of the quotient are the extreme eigenvalues. *)
Theorem smallest_eigen A low : A^T = A -> smallest A low -> eigen A low /\ forall a, eigen A a -> low <= a.
Proof.
move=> symmetric [bound [v nonzero value]]; split; last first.
  by move=> a [w w_nonzero /form_eigen at_w]; have := bound w; rewrite at_w ler_pmul2r ?square_gt0.
exists v => //; apply/eqP; rewrite -mul_scalar_mx -subr_eq0 -mulmxBl; apply/eqP/form_null.
- by rewrite linearB /= tr_scalar_mx symmetric.
- by move=> w; rewrite form_sub form_scalar subr_ge0.
by rewrite form_sub form_scalar value subrr.
Qed.

Theorem greatest_eigen A high : A^T = A -> greatest A high -> eigen A high /\ forall a, eigen A a -> a <= high.
Proof.
move=> symmetric [bound [v nonzero value]]; split; last first.
  by move=> a [w w_nonzero /form_eigen at_w]; have := bound w; rewrite at_w ler_pmul2r ?square_gt0.
exists v => //; apply/eqP; rewrite eq_sym -mul_scalar_mx -subr_eq0 -mulmxBl; apply/eqP/form_null.
- by rewrite linearB /= tr_scalar_mx symmetric.
- by move=> w; rewrite form_sub form_scalar subr_ge0.
by rewrite form_sub form_scalar value subrr.
Qed.

End Forms.

Section Grouping.

Variables (R : realFieldType) (L k m : nat).
Implicit Types (M : 'M[R]_(k, L)) (H : 'M[R]_L) (group : 'I_L -> 'I_k).

(* For any groups of exactly m tokens, in any order: M M^T = I / m. *)
Theorem averaging_orthogonal group :
  (forall g, #|[pred j | group j == g]| = m) -> let M := averaging R m group in M *m M^T = (m%:R^-1)%:M.
Proof.
move=> sizes /=; apply/matrixP => g h; rewrite !mxE.
have [->|differ] := eqVneq g h.
  rewrite mulr1n (eq_bigr (fun j => if group j == h then m%:R^-1 ^+ 2 else 0)) => [|j _]; last first.
    by rewrite !mxE; case: eqP => _; rewrite ?mulr0 // expr2.
  rewrite -big_mkcond sumr_const sizes; case: (posnP m) => [->|m_gt0]; first by rewrite mulr0n invr0.
  by rewrite -mulr_natl expr2 mulrA divff ?mul1r // pnatr_eq0 -lt0n.
rewrite mulr0n big1 // => j _; rewrite !mxE; case: eqP => [->|_]; last by rewrite mul0r.
by rewrite (negbTE differ) mulr0.
Qed.

Lemma form_grouped M H u : form (M *m H *m M^T) u = form H (M^T *m u).
Proof. by rewrite /form trmx_mul trmxK !mulmxA. Qed.

Lemma square_grouped M u : M *m M^T = (m%:R^-1)%:M -> square (M^T *m u) = square u / m%:R.
Proof.
move=> orthogonal; rewrite /square trmx_mul trmxK mulmxA -[_ *m M *m _]mulmxA orthogonal.
by rewrite mul_mx_scalar -scalemxAl mxE mulrC.
Qed.

End Grouping.

(* (low / m) |u|^2 <= u^T Hbar u <= (high / m) |u|^2: Lemmas 3 and 4. *)
Theorem grouped_between (R : realFieldType) (L k m : nat) (M : 'M[R]_(k, L)) (H : 'M[R]_L) (low high : R) :
  M *m M^T = (m%:R^-1)%:M -> between low high H -> between (low / m%:R) (high / m%:R) (M *m H *m M^T).
Proof.
move=> orthogonal bounds u; have := bounds (M^T *m u).
by rewrite form_grouped (square_grouped u orthogonal) [square u / _]mulrC !mulrA.
Qed.

(* The extreme values themselves: lambda_min(H) / m <= lambda_min(Hbar) and lambda_max(Hbar) <= lambda_max(H) / m. *)
Theorem grouped_extremes (R : realFieldType) (L k m : nat) (M : 'M[R]_(k, L)) (H : 'M[R]_L) (low high low' high' : R) :
  M *m M^T = (m%:R^-1)%:M ->
  smallest H low -> greatest H high -> smallest (M *m H *m M^T) low' -> greatest (M *m H *m M^T) high' ->
  low / m%:R <= low' /\ high' <= high / m%:R.
Proof.
move=> orthogonal [below _] [above _] [_ [v v_nonzero at_v]] [_ [w w_nonzero at_w]].
have bounds : between low high H by move=> x; rewrite below above.
have [/andP[low_le _] /andP[_ high_le]] :=
  (grouped_between orthogonal bounds v, grouped_between orthogonal bounds w).
by move: low_le high_le; rewrite at_v at_w !ler_pmul2r ?square_gt0.
Qed.

Lemma ratio_bound (R : realFieldType) (m : nat) (low high a b : R) :
  (0 < m)%N -> 0 < low -> 0 < high -> low / m%:R <= a -> b <= high / m%:R -> b / a <= high / low.
Proof.
move=> m_gt0 low_gt0 high_gt0 low_le high_le.
have a_gt0 : 0 < a by apply: lt_le_trans low_le; rewrite divr_gt0 ?ltr0n.
rewrite ler_pdivr_mulr //; apply: le_trans high_le _.
have -> : high / m%:R = high / low * (low / m%:R) by rewrite mulrA divfK ?gt_eqF.
by rewrite ler_wpmul2l // ltW // divr_gt0.
Qed.

(* Whatever bounds H has, the eigenvalues of Hbar differ by no greater factor. *)
Theorem grouped_eigenvalues (R : realFieldType) (L k m : nat) (M : 'M[R]_(k, L)) (H : 'M[R]_L) (low high a b : R) :
  (0 < m)%N -> M *m M^T = (m%:R^-1)%:M -> 0 < low -> between low high H ->
  eigen (M *m H *m M^T) a -> eigen (M *m H *m M^T) b -> b / a <= high / low.
Proof.
move=> m_gt0 orthogonal low_gt0 bounds at_a at_b.
have bounds' := grouped_between orthogonal bounds.
have [/andP[low_le low_high] /andP[_ high_le]] := (eigen_between bounds' at_a, eigen_between bounds' at_b).
have high_gt0 : 0 < high.
  by have := le_trans low_le low_high; rewrite ler_pmul2r ?invr_gt0 ?ltr0n //; apply: lt_le_trans.
exact: ratio_bound low_gt0 high_gt0 low_le high_le.
Qed.

(* kappa(Hbar) <= kappa(H), where kappa is the greatest over the smallest value of the quotient. *)
Theorem grouped_condition (R : realFieldType) (L k m : nat) (M : 'M[R]_(k, L)) (H : 'M[R]_L) (low high low' high' : R) :
  (0 < m)%N -> M *m M^T = (m%:R^-1)%:M -> 0 < low ->
  smallest H low -> greatest H high -> smallest (M *m H *m M^T) low' -> greatest (M *m H *m M^T) high' ->
  high' / low' <= high / low.
Proof.
move=> m_gt0 orthogonal low_gt0 small great small' great'.
have [low_le high_le] := grouped_extremes orthogonal small great small' great'.
have high_gt0 : 0 < high.
  case: small great => below _ [above [v nonzero _]]; apply: lt_le_trans low_gt0 _.
  by have := le_trans (below v) (above v); rewrite ler_pmul2r ?square_gt0.
exact: ratio_bound low_gt0 high_gt0 low_le high_le.
Qed.

Section Hessian.

Variables (R : realFieldType) (L d : nat) (V : 'M[R]_(L, d)).

Lemma second_difference (p q y : R) :
  (p + q - y) ^+ 2 - (p - y) ^+ 2 - (q - y) ^+ 2 + (- y) ^+ 2 = 2%:R * (p * q).
Proof.
have cancel A B C D E : A + B + C - A - (C - D + E) + E = B + D :> R.
  by rewrite opprD addrA subrK opprB -[A + B + C]addrA [A + _]addrC addrK addrA addrAC addrK.
rewrite [p + q - y]addrAC sqrrD [(q - y) ^+ 2]sqrrB sqrrN cancel.
by rewrite mulrBl mulrnBl [y * q]mulrC subrK mulr_natl.
Qed.

(* `hessian V` is the second derivative of f(alpha) = |V^T alpha - y|^2: f is quadratic, and its second difference is
   f(a + b) - f(a) - f(b) + f(0) = a^T H b. *)
Theorem hessian_second_difference (y : 'cV[R]_d) (a b : 'cV[R]_L) :
  let f alpha := square (V^T *m alpha - y) in
  f (a + b) - f a - f b + f 0 = (a^T *m hessian V *m b) 0 0.
Proof.
rewrite /= mulmx0 sub0r mulmxDr !square_sum.
have -> : (a^T *m hessian V *m b) 0 0 = \sum_i 2%:R * ((V^T *m a) i 0 * (V^T *m b) i 0).
  rewrite -big_distrr /hessian -scalemxAr -scalemxAl mxE; congr (_ * _).
  have -> : a^T *m (V *m V^T) *m b = (V^T *m a)^T *m (V^T *m b) by rewrite trmx_mul trmxK !mulmxA.
  by rewrite mxE; apply: eq_bigr => i _; rewrite [X in X * _]mxE.
rewrite -!sumrB -big_split /=; apply: eq_bigr => i _; rewrite -(second_difference _ _ (y i 0)).
by do ![congr (_ + _) | congr (- _) | congr (_ ^+ 2)]; rewrite !mxE.
Qed.

Lemma hessian_symmetric : (hessian V)^T = hessian V.
Proof. by rewrite /hessian linearZ /= trmx_mul trmxK. Qed.

(* The Hessian of Problem 2, for the values M V, is M H M^T. *)
Theorem hessian_grouped k (M : 'M[R]_(k, L)) : hessian (M *m V) = M *m hessian V *m M^T.
Proof. by rewrite /hessian trmx_mul -scalemxAr -scalemxAl !mulmxA. Qed.

(* A positive lower bound needs L <= d: with more tokens than columns, some v != 0 has V^T v = 0. *)
Theorem positive_needs_width (low : R) :
  0 < low -> (forall v, low * square v <= form (hessian V) v) -> (L <= d)%N.
Proof.
move=> low_gt0 bound; rewrite leqNgt; apply/negP => short.
have : kermx V != 0 by rewrite -mxrank_eq0 mxrank_ker subn_eq0 -ltnNge (leq_ltn_trans (rank_leq_col V)).
move=> /rowV0Pn[u /sub_kermxP null nonzero].
have := bound u^T; rewrite /form /hessian trmxK -scalemxAr mulmxA null mul0mx scaler0 mul0mx mxE.
by rewrite leNgt mulr_gt0 // square_gt0 // -trmx0 (inj_eq trmx_inj).
Qed.

End Hessian.

(* Theorem 3 for values V of any shape and groups of exactly m tokens, in any order. *)
Theorem hessian_condition (R : realFieldType) (L d k m : nat) (V : 'M[R]_(L, d)) (group : 'I_L -> 'I_k)
    (low high low' high' : R) :
  (0 < m)%N -> (forall g, #|[pred j | group j == g]| = m) -> 0 < low ->
  smallest (hessian V) low -> greatest (hessian V) high ->
  smallest (hessian (averaging R m group *m V)) low' -> greatest (hessian (averaging R m group *m V)) high' ->
  high' / low' <= high / low.
Proof.
move=> m_gt0 sizes; rewrite hessian_grouped.
exact: grouped_condition m_gt0 (averaging_orthogonal R sizes).
Qed.

(* Neighbouring tokens: token j of k m is in group j / m. *)
Lemma group_bound k m (j : 'I_(k * m)) : (j %/ m < k)%N.
Proof. by rewrite ltn_divLR //; case: m j => // -[j] /=; rewrite muln0. Qed.

Definition neighbours k m (j : 'I_(k * m)) : 'I_k := Ordinal (group_bound j).

Theorem neighbours_sizes k m (g : 'I_k) : #|[pred j | @neighbours k m j == g]| = m.
Proof.
have place (i : 'I_m) : (g * m + i < k * m)%N.
  rewrite (@leq_trans (g.+1 * m)%N) //; first by rewrite mulSn addnC ltn_add2r.
  by rewrite leq_mul2r ltn_ord orbT.
rewrite -[RHS]card_ord -(card_codom (f := fun i => Ordinal (place i))); last first.
  by move=> i h /(congr1 val) /= /addnI same; apply: val_inj.
apply: eq_card => j; rewrite inE; apply/eqP/codomP => [in_g|[i ->]].
  have m_gt0 : (0 < m)%N by case: m j {place in_g} => // -[j] /=; rewrite muln0.
  exists (Ordinal (ltn_pmod j m_gt0)); apply: val_inj => /=.
  by rewrite -in_g /= -divn_eq.
by apply: val_inj; rewrite /= divnMDl ?divn_small ?addn0 // (leq_trans _ (ltn_ord i)).
Qed.

(* The theorem is not empty, and its bounds are reached: V = I has H = 2 I and Hbar = (2 / m) I. *)
Theorem hessian_condition_attained (R : realFieldType) (k m : nat) :
  (0 < m)%N -> (0 < k)%N ->
  let V : 'M[R]_(k * m) := 1%:M in
  let Vbar := averaging R m (@neighbours k m) *m V in
  [/\ smallest (hessian V) 2%:R, greatest (hessian V) 2%:R,
      smallest (hessian Vbar) (2%:R / m%:R) & greatest (hessian Vbar) (2%:R / m%:R)].
Proof.
move=> m_gt0 k_gt0 V Vbar.
have extremes n (a : R) : (0 < n)%N -> smallest (a%:M : 'M_n) a /\ greatest (a%:M : 'M_n) a.
  case: n => // n _; have nonzero : const_mx 1 != 0 :> 'cV[R]_n.+1.
    by apply/eqP => /matrixP/(_ 0 0)/eqP; rewrite !mxE oner_eq0.
  by split; (split; [move=> v | exists (const_mx 1)]); rewrite ?form_scalar.
have -> : hessian Vbar = (2%:R / m%:R)%:M.
  rewrite /Vbar mulmx1 /hessian averaging_orthogonal ?scale_scalar_mx //; exact: neighbours_sizes.
have -> : hessian V = 2%:R%:M by rewrite /hessian /V trmx1 mulmx1 scalemx1.
have [|small great] := extremes (k * m)%N 2%:R; first by rewrite muln_gt0 k_gt0.
by have [small' great'] := extremes k (2%:R / m%:R) k_gt0.
Qed.
